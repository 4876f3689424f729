from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from hsqueue.store import writeback
from hsqueue.store.publish import publish
from hsqueue.store.writeback import WriteBack, begin_write_back
from tests.support.volume import Volume

Ranges = list[tuple[int, int]]


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Ranges:
    """What the kernel was asked for: (offset, length)."""
    found: Ranges = []
    monkeypatch.setattr(writeback, "begin_write_back", lambda _, offset, length: found.append((offset, length)))
    monkeypatch.setattr(writeback, "STRIDE", 10)
    return found


def test_what_is_written_is_written_back_in_strides_without_a_gap(begun: Ranges) -> None:
    back = WriteBack(0)
    for length in (4, 4, 4, 25, 1, 2):
        back.wrote(length)
    assert begun == [(0, 10), (10, 20), (30, 10)]


def test_a_sample_is_written_back_while_it_is_copied(
    volume: Volume, begun: Ranges, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hsqueue.store.publish.CHUNK_BYTES", 7)
    monkeypatch.setattr("hsqueue.store.publish._spare", [])
    synced = _notice_syncs(monkeypatch, begun)
    job = volume.publication(1)
    publish(job, lambda: None)
    payload = job.dump.file_bytes - job.dump.size
    assert sum(length for _, length in begun) == payload // 10 * 10
    assert synced == [begun], "all of it was begun before the file was synced"


def _notice_syncs(monkeypatch: pytest.MonkeyPatch, begun: Ranges) -> list[Ranges]:
    """What had been begun at each fsync of a file."""
    seen: list[Ranges] = []
    sync: Callable[[int], None] = os.fsync

    def fsync(descriptor: int) -> None:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            seen.append(list(begun))
        sync(descriptor)

    monkeypatch.setattr("os.fsync", fsync)
    return seen


def test_it_is_a_hint_and_fails_nothing(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        closed = os.dup(file.fileno())
    os.close(closed)
    begin_write_back(closed, 0, 100)
    read_end, write_end = os.pipe()
    begin_write_back(write_end, 0, 100)
    os.close(read_end)
    os.close(write_end)


def test_linux_has_it() -> None:
    """Missing, it would be a hint that nobody gets."""
    assert writeback._sync_file_range is not None
