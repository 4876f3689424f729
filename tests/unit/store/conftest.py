from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.volume import Volume, make_volume

LENGTHS = (5, 9, 5, 3, 12, 7)
"""Samples 0 and 2 have the same length, so that their files have the same size."""


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    """A planned run of six samples in two shards, with nothing published."""
    return make_volume(tmp_path / "run", LENGTHS, 3)


@pytest.fixture
def files(volume: Volume) -> Callable[[], list[str]]:
    """Names of everything under ``RUN/samples``, directories left out."""

    def listed() -> list[str]:
        return sorted(path.name for path in volume.layout.samples.rglob("*") if not path.is_dir())

    return listed
