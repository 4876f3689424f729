"""Waiting for what no event announces: what another process does to a file, to Redis or a server, or its end."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

SECONDS = 90.0
"""Nobody waits that long unless something is wrong; the machine may be busy."""
PAUSE = 0.02


def nothing() -> None:
    return


def comes_true(
    condition: Callable[[], object],
    seconds: float = SECONDS,
    pause: float = PAUSE,
    meanwhile: Callable[[], None] = nothing,
) -> bool:
    """Whether `condition` holds within `seconds`. meanwhile: called between two looks."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        meanwhile()
        # The one place where tests look again and again.
        time.sleep(pause)
    return True


def await_true(
    condition: Callable[[], object],
    why: str | Callable[[], str],
    seconds: float = SECONDS,
    pause: float = PAUSE,
    meanwhile: Callable[[], None] = nothing,
) -> None:
    """Returns once `condition` holds. why: what is wrong where it does not; a function makes it then."""
    if not comes_true(condition, seconds, pause, meanwhile):
        raise AssertionError(why if isinstance(why, str) else why())


def lives(process: subprocess.Popen[bytes], log: Path) -> Callable[[], None]:
    """For `meanwhile`: fails with what the process said last once it has ended."""

    def look() -> None:
        if (status := process.poll()) is not None:
            said = log.read_text(errors="replace") if log.exists() else ""
            raise AssertionError(f"it ended with status {status}:\n{said[-3000:]}")

    return look
