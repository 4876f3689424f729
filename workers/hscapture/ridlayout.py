"""The contract's layout: ``req_<rid>/hidden.safetensors``, complete the moment it can be seen."""

from __future__ import annotations

import itertools
import os
import shutil
import threading
from pathlib import Path

from hscapture.assemble import Dump
from hscapture.dumpfile import file_buffers, write_all
from hsqueue.contracts.card import EngineCard
from hsqueue.contracts.dump import DUMP_FILE
from hsqueue.contracts.errors import DumpMalformed, VolumeUnusable
from hsqueue.contracts.rid import dump_directory_name

TEMPORARY = ".tmp-"


class RidLayout:
    """Writes dumps below `directory`; safe to call from several threads.

    limit: bytes that unread dumps may take together, or None. Raises OSError from the constructor where
    the directory cannot be made.
    """

    def __init__(self, directory: Path, card: EngineCard, limit: int | None = None) -> None:
        self._directory, self._card = directory, card
        self._budget = None if limit is None else DirectoryBudget(directory, limit)
        self._numbers = itertools.count()
        make_dump_directory(directory)
        remove_leftovers(directory)

    def write(self, dump: Dump) -> None:
        """Makes the dump visible by one rename, or leaves nothing.

        Raises ValueError for a rid that is not safe as a name, DumpMalformed for states that do not fit
        the card or a rid that has a dump already, VolumeUnusable beyond the limit, OSError where the
        volume refuses.
        """
        final = self._directory / dump_directory_name(dump.rid)
        if os.path.lexists(final):
            raise DumpMalformed("a dump of this request exists already; this one is dropped", sample=dump.rid)
        buffers = self.buffers(dump)
        if self._budget is not None:
            self._budget.take(sum(map(len, buffers)))
        temporary = self._directory / f"{TEMPORARY}{os.getpid()}-{next(self._numbers)}"
        try:
            temporary.mkdir()
            write_file(temporary / DUMP_FILE, buffers)
            temporary.rename(final)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise

    def buffers(self, dump: Dump) -> list[memoryview]:
        """The bytes of the dump's file."""
        return file_buffers(dump, self._card)


def write_file(path: Path, buffers: list[memoryview]) -> None:
    """A new file of exactly these bytes. Raises FileExistsError rather than write into another's file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        write_all(descriptor, buffers)
    finally:
        os.close(descriptor)


def make_dump_directory(directory: Path) -> None:
    """Made private, since states are training data and /dev/shm is open to everybody on the machine."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)


def remove_leftovers(directory: Path) -> None:
    """Removes temporary directories whose process is gone; a living neighbour's are left alone."""
    for path in directory.glob(f"{TEMPORARY}*"):
        owner = path.name.removeprefix(TEMPORARY).partition("-")[0]
        if not (owner.isdecimal() and _alive(int(owner))):
            shutil.rmtree(path, ignore_errors=True)


def _alive(pid: int) -> bool:
    if pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


class DirectoryBudget:
    """Bounds the bytes of dumps that lie unread. The reader deletes what it has read, so the directory is
    measured again, but only when what was written since the last look could exceed the limit.
    """

    def __init__(self, directory: Path, limit: int) -> None:
        self._directory, self._limit = directory, limit
        self._used = limit
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> None:
        """Reserves `nbytes`. Raises VolumeUnusable where they do not fit."""
        with self._lock:
            if self._used + nbytes > self._limit:
                self._used = dumped_bytes(self._directory)
            if self._used + nbytes > self._limit:
                raise VolumeUnusable(
                    f"the dumps in {self._directory} reach their limit",
                    expected=f"at most {self._limit} bytes",
                    found=f"{self._used} and {nbytes} more",
                    do="Start the worker that reads them, or raise HSQ_DUMP_LIMIT.",
                )
            self._used += nbytes


def dumped_bytes(directory: Path) -> int:
    """Bytes of all dumps, finished or not, below `directory`. What vanishes meanwhile counts for nothing."""
    total = 0
    for path in directory.glob(f"*/{DUMP_FILE}"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total
