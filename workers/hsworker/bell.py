"""A bell that any process can ring and one listens to: a named pipe, so that nobody has to look again and again."""

from __future__ import annotations

import contextlib
import os
import select
from pathlib import Path


class Bell:
    """The bell `path`, made on first use. A ring while nobody waits ends the next wait at once."""

    def __init__(self, path: Path) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        # Open for both, so that it rings into the void where the listener is gone, and never reports an end.
        self._pipe = os.fdopen(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC), "r+b", buffering=0)
        self._poll = select.poll()
        self._poll.register(self._pipe, select.POLLIN)

    def ring(self) -> None:
        """A full pipe has been rung often enough."""
        self._pipe.write(b"!")

    def wait(self, timeout: float) -> bool:
        """Whether it has rung within `timeout` seconds; any number of rings count as one. By one thread at a time."""
        if not self._poll.poll(max(0.0, timeout * 1000)):
            return False
        self._pipe.read(select.PIPE_BUF)
        return True
