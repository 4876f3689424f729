"""How tests wait: for a condition, in one place; a sleep says why it must be one."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import await_true, comes_true, lives

TESTS = Path(__file__).resolve().parents[1]
SLEEP = re.compile(r"\b(?:time|asyncio)\.sleep\(")


def unexplained(text: str) -> list[str]:
    """Lines that sleep without a comment above them."""
    lines = ["", *text.splitlines()]
    return [
        line.strip()
        for before, line in itertools.pairwise(lines)
        if SLEEP.search(line) and not before.strip().startswith("#")
    ]


def test_every_sleep_says_why() -> None:
    found = {
        str(path.relative_to(TESTS)): lines
        for path in TESTS.rglob("*.py")
        if path != Path(__file__) and (lines := unexplained(path.read_text()))
    }
    assert found == {}, "await the condition (tests/support/waiting.py), or say in a comment why it must be a time"


def test_a_sleep_without_a_reason_is_found() -> None:
    assert unexplained("# A slow disk.\ntime.sleep(1)\nawait asyncio.sleep(2)") == ["await asyncio.sleep(2)"]


def test_a_condition_is_awaited_and_something_is_done_meanwhile() -> None:
    seen: list[int] = []
    await_true(lambda: len(seen) > 2, "never", pause=0, meanwhile=lambda: seen.append(1))
    assert len(seen) == 3
    assert not comes_true(lambda: False, seconds=0)
    with pytest.raises(AssertionError, match="it stands still at 3"):
        await_true(lambda: False, lambda: f"it stands still at {len(seen)}", seconds=0)


def test_waiting_ends_with_the_process_that_is_waited_for(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen([sys.executable, "-c", "print('no room'); exit(3)"], stdout=output)
    with pytest.raises(AssertionError, match="status 3:\nno room"):
        await_true(lambda: False, "never", meanwhile=lives(process, log))
