"""A bell between threads and processes."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hsworker.bell import Bell

SOON, LONG = 0.02, 20.0


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bell"


def test_a_ring_ends_a_wait(path: Path) -> None:
    bell = Bell(path)
    threading.Timer(SOON, Bell(path).ring).start()
    assert bell.wait(LONG)


def test_a_ring_before_the_wait_is_not_lost(path: Path) -> None:
    bell = Bell(path)
    Bell(path).ring()
    assert bell.wait(LONG)


def test_many_rings_are_one(path: Path) -> None:
    bell = Bell(path)
    for _ in range(1000):
        bell.ring()
    assert bell.wait(LONG)
    assert not bell.wait(SOON)


def test_nobody_who_rings_waits_for_the_listener(path: Path) -> None:
    bell = Bell(path)
    for _ in range((1 << 20) + 1):
        bell.ring()
    assert bell.wait(LONG)


def test_a_bell_without_a_listener_can_be_rung(path: Path) -> None:
    Bell(path).ring()


@pytest.mark.parametrize("timeout", [0.0, -1.0, 0.001])
def test_a_wait_ends_in_time(path: Path, timeout: float) -> None:
    assert not Bell(path).wait(timeout)


def test_another_process_can_ring_and_may_be_gone(path: Path) -> None:
    bell = Bell(path)
    code = "import sys; from pathlib import Path; from hsworker.bell import Bell; Bell(Path(sys.argv[1])).ring()"
    subprocess.run([sys.executable, "-c", code, path], check=True)
    assert bell.wait(LONG)
    assert not bell.wait(SOON)


def test_a_bell_that_nobody_holds_is_closed(path: Path) -> None:
    before = open_files()
    Bell(path)
    assert open_files() == before
