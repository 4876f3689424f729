"""Keeps the dump directory free of what nobody will read, on a thread of its own."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, SimpleQueue

from hsqueue.contracts.dump import DUMP_FILE
from hsqueue.contracts.rid import dump_directory_name

log = logging.getLogger(__name__)

TTL_SECONDS = 900
"""More than a worker waits for a response and its dump together: what lies longer is waited for by nobody."""
LONGEST_PAUSE = 60.0


class Janitor:
    """Removes dumps: those of aborted requests when told, those that lie unread for `ttl` seconds when it sees them.

    Nothing here runs on the caller's thread. A reader whose dump is removed finds no file, which it tries again.
    """

    def __init__(self, directory: Path, ttl: float = TTL_SECONDS) -> None:
        self._directory, self._ttl = directory, ttl
        self._told: SimpleQueue[str | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="dump-janitor", daemon=True)
        self._thread.start()

    def remove(self, rid: str) -> None:
        """Removes the dump of this request soon, where it has one."""
        self._told.put(rid)

    def close(self, timeout: float = 10.0) -> None:
        """Does what it was told and ends."""
        self._told.put(None)
        self._thread.join(timeout)

    def _run(self) -> None:
        pause = min(LONGEST_PAUSE, self._ttl / 4)
        next_look = time.monotonic()
        while True:
            if time.monotonic() >= next_look:
                self._sweep()
                next_look = time.monotonic() + pause
            with contextlib.suppress(Empty):
                rid = self._told.get(timeout=max(0.0, next_look - time.monotonic()))
                if rid is None:
                    return
                with contextlib.suppress(ValueError):  # a rid that is no name has no dump
                    shutil.rmtree(self._directory / dump_directory_name(rid), ignore_errors=True)

    def _sweep(self) -> None:
        try:
            count = remove_unread(self._directory, self._ttl)
        except OSError as error:
            log.debug("%s was not looked through: %s", self._directory, error)
            return
        if count:
            log.warning("removed %d dumps that nobody has read for %g s", count, self._ttl)


def remove_unread(directory: Path, ttl: float) -> int:
    """Removes the dumps in `directory` that are complete for longer than `ttl` seconds; how many. Raises OSError."""
    count = 0
    for path in _older(directory, time.time() - ttl):
        with contextlib.suppress(OSError):
            # Older layouts keep other files under such names; they are none of ours.
            if {file.name for file in path.iterdir()} <= {DUMP_FILE}:
                shutil.rmtree(path)
                count += 1
    return count


def _older(directory: Path, born: float) -> Iterator[Path]:
    """What may be a dump and was complete before `born`, in seconds since the epoch."""
    with os.scandir(directory) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.name.startswith("req_") and entry.stat(follow_symlinks=False).st_mtime < born:
                    yield Path(entry.path)
