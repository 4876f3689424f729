"""Room for dumps that lie unread: bounded, and waited for, so that a slow reader slows the server and loses nothing."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hsqueue.contracts.dump import DUMP_FILE
from hsqueue.contracts.errors import VolumeUnusable

WAIT_SECONDS = 30
SHARE = 0.5
"""Of the file system, where no limit is given: others keep their shared memory in /dev/shm as well."""
LOOK_SECONDS = 0.02
"""Between two looks of a writer that waits."""
HOPELESS_LOOK_SECONDS = 1.0
"""Between two looks where nobody reads: one look at thousands of dumps for each that is dropped would be dear."""


class Room:
    """Bounds the bytes of the dumps that this process has written to `directory` and that lie there unread.

    The reader removes what it has read, so room is found by looking. Who finds none waits up to `wait` seconds.
    When that was in vain nobody waits any more, until a look finds room again: a server without a reader serves on
    at full speed. Dumps that stood there before count too. Safe to call from several threads.

    limit: bytes. wait: seconds. free: bytes that the file system has left, or None where it does not say; for tests,
    as is clock. Raises OSError from the constructor where the directory cannot be read.
    """

    def __init__(
        self,
        directory: Path,
        limit: int,
        wait: float = WAIT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        free: Callable[[Path], int | None] | None = None,
    ) -> None:
        self._directory, self._limit, self._wait, self._clock = directory, limit, wait, clock
        self._free = free or free_bytes
        self._unread = unread_dumps(directory)
        self._used = sum(self._unread.values())
        self._writing = 0
        self._looked = float("-inf")
        self._hopeless = False
        self._changed = threading.Condition()

    def deadline(self) -> float:
        """Until when a dump that comes now may wait, by the clock."""
        return self._clock() + self._wait

    @contextmanager
    def hold(self, dump: Path, nbytes: int, deadline: float) -> Iterator[None]:
        """Within it `nbytes` may be written; if it ends well they count for as long as the directory `dump` stands.

        Raises VolumeUnusable where there was no room in time, or never will be.
        """
        with self._changed:
            self._require_possible(nbytes)
            self._await_room(nbytes, deadline)
            self._writing += nbytes
        try:
            yield
        except BaseException:
            self._leave(nbytes)
            raise
        self._leave(nbytes, dump)

    def wait_again(self, deadline: float) -> bool:
        """After the file system was full all the same. False where it is too late to try once more."""
        with self._changed:
            if self._clock() >= deadline:
                self._hopeless = True
            if not self._hopeless:
                self._changed.wait(LOOK_SECONDS)
            return not self._hopeless

    def _leave(self, nbytes: int, dump: Path | None = None) -> None:
        with self._changed:
            self._writing -= nbytes
            if dump is not None:
                self._unread[dump] = nbytes
                self._used += nbytes

    def _require_possible(self, nbytes: int) -> None:
        if nbytes > self._limit:
            raise VolumeUnusable(
                f"one dump alone is larger than all that may lie in {self._directory}",
                expected=f"at most {self._limit} bytes",
                found=nbytes,
                do="Raise HSQ_DUMP_LIMIT, or enlarge the file system (shm_size in Docker).",
            )

    def _await_room(self, nbytes: int, deadline: float) -> None:
        """Returns when there is room, with the condition held."""
        while not self._fits(nbytes):
            if self._hopeless or self._clock() >= deadline:
                self._hopeless = True
                raise self._full(nbytes)
            self._changed.wait(LOOK_SECONDS)
        self._hopeless = False

    def _fits(self, nbytes: int) -> bool:
        if self._exceeds(nbytes):
            self._look()
        if self._exceeds(nbytes):
            return False
        free = self._free(self._directory)
        return free is None or self._writing + nbytes <= free

    def _exceeds(self, nbytes: int) -> bool:
        return self._used + self._writing + nbytes > self._limit

    def _look(self) -> None:
        now = self._clock()
        if now - self._looked >= (HOPELESS_LOOK_SECONDS if self._hopeless else LOOK_SECONDS):
            self._looked = now
            self._unread = {dump: size for dump, size in self._unread.items() if dump.exists()}
            self._used = sum(self._unread.values())

    def _full(self, nbytes: int) -> VolumeUnusable:
        free = self._free(self._directory)
        return VolumeUnusable(
            f"no room for a dump in {self._directory} within {self._wait:g} s; until there is some, all are dropped",
            expected=f"at most {self._limit} bytes unread, and {nbytes} free",
            found=f"{self._used} unread, and {'an unknown number' if free is None else free} free",
            do="Start the worker that reads them, or raise HSQ_DUMP_LIMIT.",
        )


def default_limit(directory: Path) -> int:
    """Bytes that unread dumps may take where no limit is given. Raises OSError."""
    found = os.statvfs(directory)
    total = found.f_blocks * found.f_frsize
    # Some file systems know no size; then there is no share of it.
    return int(SHARE * total) if total else 1 << 62


def free_bytes(directory: Path) -> int | None:
    """What the file system of `directory` has left for this user; None where it does not say."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return None
    if found.f_files and not found.f_favail:
        return 0
    return found.f_bavail * found.f_frsize if found.f_blocks else None


def unread_dumps(directory: Path) -> dict[Path, int]:
    """Bytes of each dump below `directory`. What vanishes meanwhile counts for nothing. Raises OSError."""
    found = {}
    for path in directory.iterdir():
        try:
            found[path] = (path / DUMP_FILE).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            continue
    return found
