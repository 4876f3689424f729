"""Where dumps come from: a source waits for a request's dump and hands it over as one readable file."""

from __future__ import annotations

import os
import shutil
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from hsqueue.contracts.card import CARD_NAME
from hsqueue.contracts.complaint import COMPLAINT_NAME, Complaint
from hsqueue.contracts.dump import DUMP_FILE, INPUT_IDS, DumpMeta
from hsqueue.contracts.errors import DumpDirectoryNotShared, DumpMalformed, DumpMissing
from hsqueue.contracts.rid import RequestId, dump_directory_name, parse_rid
from hsqueue.contracts.sample import Sample
from hsqueue.contracts.tensorfile import ITEM_BYTES, LENGTH_BYTES, TensorFile, header_length, parse_header

FIRST_PAUSE = 0.002
LONGEST_PAUSE = 0.02
COMPLAINT_SECONDS = 15.0
"""How old the engine's last complaint may be when a wait begins; it repeats itself every ten seconds."""


@dataclass(frozen=True, slots=True)
class Dump:
    """A dump's file and its parsed head. directory: to be removed when the sample is published.
    ids: the bytes of ``input_ids``, int64 [S].
    """

    path: Path
    directory: Path
    file: TensorFile
    meta: DumpMeta
    ids: bytes


class DumpSource(Protocol):
    """One request's dump, by whichever layout the engine writes."""

    def announce(self, rid: RequestId, sample: Sample) -> None:
        """Called before the request is sent."""

    def wait(self, rid: RequestId, sample: Sample, timeout: float) -> Dump:
        """Called after the response. Raises DumpMissing after `timeout` seconds, DumpMalformed, DumpAmbiguous."""

    def forget(self, rid: RequestId, *, orphaned: bool) -> None:
        """Called once the request is over. orphaned: its dump was not taken and may yet appear."""


def require_private(directory: Path) -> None:
    """Raises DumpDirectoryNotShared where others than this user may put dumps into `directory`."""
    try:
        status = directory.stat()
    except OSError as error:
        raise DumpDirectoryNotShared(
            f"{directory} cannot be used ({error.strerror})", do="Give --dump-dir the engine's HSQ_DUMP_DIR."
        ) from None
    if status.st_uid != os.geteuid():
        raise DumpDirectoryNotShared(
            f"{directory} belongs to another user", expected=f"user {os.geteuid()}", found=f"user {status.st_uid}",
            do="Run engine and worker as the same user.",
        )  # fmt: skip
    if status.st_mode & 0o022:
        raise DumpDirectoryNotShared(
            f"other users may write to {directory}", expected="mode 700", found=f"mode {status.st_mode & 0o7777:o}",
            do=f"Run chmod 700 {directory}, or name a directory that the engine makes.",
        )  # fmt: skip


def open_dump(path: Path) -> IO[bytes]:
    """Opens a plain file of this user, and nothing that leads or waits elsewhere: no link, pipe or device.

    Raises DumpMalformed, FileNotFoundError.
    """
    if path.parent.is_symlink():
        raise DumpMalformed("a link in place of a dump's directory", sample=path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DumpMalformed(f"a dump that cannot be opened ({error.strerror})", sample=path) from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        os.close(descriptor)
        raise DumpMalformed("no plain file of this user in place of a dump", sample=path)
    return os.fdopen(descriptor, "rb")


def read_dump(path: Path, tokens: int) -> Dump:
    """Reads the head and the token ids of a dump, not its states. Raises DumpMalformed, FileNotFoundError.

    tokens: expected; no more token ids are read than one beyond them, however many the file claims to hold.
    """
    with open_dump(path) as file:
        prefix = file.read(LENGTH_BYTES)
        head = parse_header(prefix + file.read(header_length(prefix)))
        size = os.fstat(file.fileno()).st_size
        if size != head.file_bytes:
            raise DumpMalformed("dump of the wrong length", expected=head.file_bytes, found=size, sample=path)
        ids = head.tensors.get(INPUT_IDS)
        if ids is None:
            raise DumpMalformed("dump without token ids", sample=path)
        file.seek(head.size + ids.begin)
        data = file.read(min(ids.end - ids.begin, (tokens + 1) * ITEM_BYTES["I64"]))
    return Dump(path, path.parent, head, DumpMeta.from_metadata(head.metadata), data)


class RidDumps:
    """The contract's layout: ``req_<rid>/hidden.safetensors``, complete as soon as it is visible."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def announce(self, rid: RequestId, sample: Sample) -> None:
        return

    def wait(self, rid: RequestId, sample: Sample, timeout: float) -> Dump:
        path = self.directory / rid.directory / DUMP_FILE
        deadline, pause = time.monotonic() + timeout, FIRST_PAUSE
        began = time.time()
        engine = self._engine()
        while True:
            try:
                return read_dump(path, sample.tokens)
            except FileNotFoundError:
                if pause >= LONGEST_PAUSE and self._engine() != engine:
                    raise DumpMissing("the engine was restarted before it wrote the dump", sample=rid) from None
                if time.monotonic() >= deadline:
                    raise DumpMissing(
                        f"no dump in {self.directory} within {timeout:.0f} s of the response", sample=rid,
                        found=complaint_about(self.directory, str(rid), began),
                        do="See the engine's log for why capture failed; hsqueue doctor checks the directory.",
                    ) from None  # fmt: skip
            time.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 2)

    def _engine(self) -> int:
        """Changes when the engine is restarted: it writes a new card."""
        try:
            return (self.directory / CARD_NAME).stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def forget(self, rid: RequestId, *, orphaned: bool) -> None:
        shutil.rmtree(self.directory / rid.directory, ignore_errors=True)


def complaint_about(directory: Path, rid: str, since: float) -> str | None:
    """What the engine last complained of, where it is this request or not long before `since`, seconds since the epoch.

    A full directory fails many dumps and is complained of once in a while, so another request's may well be the cause.
    """
    try:
        last = Complaint.from_json((directory / COMPLAINT_NAME).read_bytes())
    except (OSError, ValueError):
        return None
    if last.rid != rid and last.time < since - COMPLAINT_SECONDS:
        return None
    whose = "" if last.rid == rid else f" about {last.rid}"
    return f"the engine's complaint{whose}: {last.text[:300]}"


def sweep(directory: Path, active_fences: set[int], minimum_age: float) -> int:
    """Removes dumps of ours that nobody waits for any more: of no active fence and older than `minimum_age` s.

    Orphans of aborted and timed-out requests would fill the directory otherwise. Returns how many.
    """
    count = 0
    now = time.time()
    for entry in os.scandir(directory):
        rid = parse_rid(entry.name.removeprefix("req_")) if entry.name.startswith("req_") else None
        if rid is None or rid.fence in active_fences or entry.name != dump_directory_name(str(rid)):
            continue
        try:
            old = now - entry.stat(follow_symlinks=False).st_mtime >= minimum_age
        except FileNotFoundError:
            continue
        if old:
            shutil.rmtree(entry.path, ignore_errors=True)
            count += 1
    return count
