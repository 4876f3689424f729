"""One dump to one published file: copied once, hashed in the same pass, committed by ``link(2)``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import xxhash

from hsqueue.contracts.dump import INPUT_IDS, DumpMeta
from hsqueue.contracts.errors import DumpMalformed, DumpMismatch, DumpMissing, LeaseLost, VolumeUnusable
from hsqueue.contracts.sample import Published
from hsqueue.contracts.tensorfile import TensorFile, TensorSpec
from hsqueue.store.files import commit_link, discard, make_directory, temporary_name, volume_error
from hsqueue.store.samplefile import (
    CHECKSUM_DIGITS,
    digest_of,
    read_sample_header,
    sample_header,
    sample_metadata,
    sample_tensors,
)
from hsqueue.store.writeback import WriteBack

CHUNK_BYTES = 1 << 20
"""What is hashed is still in the processor's cache when it is written."""


@dataclass(frozen=True, slots=True)
class Publication:
    """What to publish and where. source: the dump's file. dump, meta: its parsed header.
    ids: the planned token ids, int64 [S], as bytes. loss_mask: bytes [S]. final: the published name. mark: of the
    attempt, for the temporary name.
    """

    source: Path
    dump: TensorFile
    meta: DumpMeta
    run: str
    index: int
    id: str
    ids: bytes
    loss_mask: bytes
    final: Path
    mark: str


def publish(job: Publication, may_publish: Callable[[], None]) -> Published:
    """Copies, syncs and links one sample. The directory is left to the caller to sync, for many at once.

    may_publish: called just before the link; raises where the lease is lost, and then nothing is published.
    Where another attempt has published the sample already, that file is kept and returned.
    Raises VolumeUnusable; DumpMissing where the dump went away; DumpMismatch where the copy holds other token ids;
    LeaseLost where another worker took the shard and cleared this one's temporary file; DumpMalformed where the file
    that another attempt published is damaged.
    """
    make_directory(job.final.parent)
    temporary = temporary_name(job.final, job.mark)
    try:
        with _open_dump(job.source) as source:
            published = _write(job, source, temporary)
        may_publish()
        if not commit_link(temporary, job.final):
            return _winner(job)
        return published
    except FileNotFoundError:
        raise LeaseLost(
            f"{temporary.name} was cleared away by another worker", do="Nothing; that worker has the shard."
        ) from None
    except OSError as error:
        raise volume_error(error, job.final) from error
    finally:
        discard(temporary)


def _winner(job: Publication) -> Published:
    """What another attempt has published under the name. Raises VolumeUnusable where this node does not see it."""
    try:
        header = read_sample_header(job.final)
    except FileNotFoundError:
        raise VolumeUnusable(
            f"{job.final} is taken, and this node does not see it yet",
            do="Mount the shared volume so that absent names are not cached; workers go on by themselves.",
        ) from None
    if (header.run, header.index) != (job.run, job.index):
        raise DumpMalformed(
            f"{job.final} holds another sample",
            expected=f"sample {job.index} of run {job.run}",
            found=f"sample {header.index} of run {header.run}",
            do="Run hsqueue verify --repair; it takes the file away and asks for the sample again.",
        )
    return header.published


def _open_dump(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise DumpMissing(f"{path} went away before it was copied") from None


def _write(job: Publication, source: IO[bytes], temporary: Path) -> Published:
    tensors = sample_tensors(job.dump, job.meta.num_tokens)

    def header(checksum: str) -> bytes:
        return sample_header(tensors, sample_metadata(job.run, job.index, job.id, job.meta, checksum))

    start = len(header("0" * CHECKSUM_DIGITS))
    with temporary.open("x+b", buffering=0) as target:
        os.lseek(target.fileno(), start, os.SEEK_SET)
        checksum = _copy_payload(source.fileno(), job.dump, target.fileno(), job.loss_mask)
        _require_ids(job, tensors, target.fileno(), start)
        final_header = header(checksum)
        os.lseek(target.fileno(), 0, os.SEEK_SET)
        _write_all(target.fileno(), memoryview(final_header))
        os.fsync(target.fileno())
    size = start + tensors[-1].end
    return Published(job.index, job.meta.num_tokens, size, digest_of(final_header))


def _require_ids(job: Publication, tensors: tuple[TensorSpec, ...], target: int, start: int) -> None:
    """A dump is matched before it is copied; whatever happened to it in between, the copy is what counts."""
    ids = next(spec for spec in tensors if spec.name == INPUT_IDS)
    if os.pread(target, ids.end - ids.begin, start + ids.begin) != job.ids:
        raise DumpMismatch("the dump became another one while it was copied", sample=job.source)


def _copy_payload(source: int, dump: TensorFile, target: int, loss_mask: bytes) -> str:
    digest = xxhash.xxh3_128()
    write_back = WriteBack(target)
    # Read, not mapped: a mapping costs page faults, and kills the process where the dump is cut meanwhile.
    with _buffer() as buffer, memoryview(buffer) as view:
        for begin in range(dump.size, dump.file_bytes, len(buffer)):
            with view[: min(len(buffer), dump.file_bytes - begin)] as chunk:
                _read_all(source, chunk, begin)
                digest.update(chunk)
                _write_all(target, chunk)
                write_back.wrote(len(chunk))
    digest.update(loss_mask)
    _write_all(target, memoryview(loss_mask))
    return digest.hexdigest()


_spare: list[bytearray] = []
"""Buffers that no thread uses; as many as there were publishers at once."""


@contextmanager
def _buffer() -> Iterator[bytearray]:
    """One of CHUNK_BYTES for this thread alone."""
    try:
        buffer = _spare.pop()
    except IndexError:
        buffer = bytearray(CHUNK_BYTES)
    yield buffer
    _spare.append(buffer)


def _read_all(source: int, chunk: memoryview, offset: int) -> None:
    """Fills `chunk` from `offset` on. Raises DumpMismatch where the file ends before."""
    position = 0
    while position < len(chunk):
        with chunk[position:] as rest:
            count = os.preadv(source, [rest], offset + position)
        if not count:
            raise DumpMismatch("the dump was cut while it was copied")
        position += count


def _write_all(target: int, data: memoryview) -> None:
    # Each slice is released before an error leaves, or the map beneath could not be closed.
    position = 0
    while position < len(data):
        with data[position:] as rest:
            position += os.write(target, rest)
