from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hsworker.counter_dumps import CounterDumps
from tests.support.fakeengine import CARD


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A dump directory."""
    made = tmp_path / "dumps"
    made.mkdir()
    return made


@pytest.fixture
def make(root: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], CounterDumps]:
    """Makes a reader of `root` that looks at it at every call, however soon after the last look."""
    monkeypatch.setattr("hsworker.counter_dumps.POLL", 0.0)
    return lambda: CounterDumps(root, CARD, root / ".hsqueue", settle=0.0, patience=5.0)
