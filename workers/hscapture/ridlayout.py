"""The contract's layout: ``req_<rid>/hidden.safetensors``, complete the moment it can be seen."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from pathlib import Path

from hscapture.assemble import Dump
from hscapture.dumpfile import file_buffers, write_all
from hscapture.room import WAIT_SECONDS, Room, default_limit
from hsqueue.contracts.card import EngineCard
from hsqueue.contracts.dump import DUMP_FILE
from hsqueue.contracts.errors import DumpMalformed
from hsqueue.contracts.rid import dump_directory_name

TEMPORARY = ".tmp-"


class RidLayout:
    """Writes dumps below `directory`; safe to call from several threads.

    limit: bytes that unread dumps may take together; None takes a share of the file system. Data parallel ranks
    write to one directory and get an equal part of it each. wait: seconds that a dump may wait for room.
    Raises OSError from the constructor where the directory cannot be made.
    """

    def __init__(self, directory: Path, card: EngineCard, limit: int | None = None, wait: float = WAIT_SECONDS) -> None:
        self._directory, self._card = directory, card
        self._numbers = itertools.count()
        make_dump_directory(directory)
        remove_leftovers(directory)
        whole = default_limit(directory) if limit is None else limit
        self._room = Room(directory, whole // max(1, card.ranks.get("dp", 1)), wait)

    def write(self, dump: Dump) -> None:
        """Makes the dump visible by one rename, or leaves nothing. Waits for room, for a bounded time.

        Raises ValueError for a rid that is not safe as a name, DumpMalformed for states that do not fit
        the card or a rid that has a dump already, VolumeUnusable where there was no room, OSError where the
        volume refuses.
        """
        final = self._directory / dump_directory_name(dump.rid)
        if os.path.lexists(final):
            raise DumpMalformed("a dump of this request exists already; this one is dropped", sample=dump.rid)
        buffers = self.buffers(dump)
        deadline = self._room.deadline()
        while True:
            try:
                with self._room.hold(final, sum(map(len, buffers)), deadline):
                    return self._put(buffers, final)
            except OSError as error:
                # Another server may have taken what was free a moment ago.
                if error.errno != errno.ENOSPC or not self._room.wait_again(deadline):
                    raise

    def _put(self, buffers: list[memoryview], final: Path) -> None:
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
    status = directory.stat()
    if status.st_uid != os.geteuid():
        # Whoever made it before would read every state, or put others in their place.
        raise PermissionError(errno.EPERM, "it belongs to another user", str(directory))
    if status.st_mode & 0o022:
        raise PermissionError(errno.EPERM, "other users may write to it, run chmod 700", str(directory))


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
