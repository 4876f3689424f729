from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest

from hscapture.assemble import Dump
from hscapture.ridlayout import RidLayout
from hscapture.room import HOPELESS_LOOK_SECONDS, Room, default_limit, free_bytes, unread_dumps
from hscapture.writer import DumpWriter
from hsqueue.contracts.errors import VolumeUnusable
from tests.unit.capture.states import make_card, make_dump

LONG = 60
"""Seconds that nobody waits here unless something is wrong."""


class Clock:
    """Moves when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def put(directory: Path, name: str, nbytes: int) -> Path:
    (directory / name).mkdir()
    (directory / name / "hidden.safetensors").write_bytes(bytes(nbytes))
    return directory / name


def take(room: Room, directory: Path, name: str, nbytes: int) -> Path:
    with room.hold(directory / name, nbytes, room.deadline()):
        return put(directory, name, nbytes)


def size_of_a_dump(tmp_path: Path) -> int:
    RidLayout(tmp_path / "size", make_card()).write(make_dump("one", [1, 2, 3]))
    return sum(unread_dumps(tmp_path / "size").values())


def test_writers_wait_for_the_reader_and_nothing_is_lost(tmp_path: Path) -> None:
    size, place = size_of_a_dump(tmp_path), tmp_path / "dumps"
    layout = RidLayout(place, make_card(), limit=2 * size, wait=LONG)
    writer = DumpWriter(layout.write, threads=2, pending_bytes=2 * make_dump("a", [1, 2, 3]).nbytes)
    submitted: list[int] = []

    def submit_all() -> None:
        for n in range(12):
            writer.submit(make_dump(f"r{n:02}", [1, 2, 3]))
            submitted.append(n)

    sender = threading.Thread(target=submit_all, daemon=True)
    sender.start()
    seen: set[str] = set()
    while len(seen) < 12:
        # The bounds hold whenever one looks: two dumps lie unread, two more are pending.
        assert len(submitted) <= len(seen) + 4
        found = sorted(place.glob("req_*"))
        assert len(found) <= 2
        for path in found:
            seen.add(path.name)
            shutil.rmtree(path)
    sender.join(LONG)
    writer.close(LONG)
    assert (writer.stats.written, writer.stats.failed) == (12, 0)
    assert writer.stats.waited > 0


def test_who_waited_in_vain_says_so_and_the_next_do_not_wait(tmp_path: Path) -> None:
    clock = Clock()
    room = Room(tmp_path, 100, wait=30, clock=clock)
    take(room, tmp_path, "a", 90)
    failures: list[VolumeUnusable] = []

    def one_more() -> None:
        try:
            take(room, tmp_path, "b", 20)
        except VolumeUnusable as error:
            failures.append(error)

    waiting = threading.Thread(target=one_more, daemon=True)
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    clock.now += 31
    waiting.join(LONG)
    assert "HSQ_DUMP_LIMIT" in str(failures[0])
    one_more()  # the clock stands still: a wait would not end
    assert len(failures) == 2
    shutil.rmtree(tmp_path / "a")
    clock.now += HOPELESS_LOOK_SECONDS
    take(room, tmp_path, "c", 90)
    waiting = threading.Thread(target=one_more, daemon=True)
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive(), "room was seen, so the next waits again"
    shutil.rmtree(tmp_path / "c")
    clock.now += 1
    waiting.join(LONG)
    assert (tmp_path / "b").exists()


def test_a_directory_that_nobody_reads_is_looked_at_once_a_second(tmp_path: Path) -> None:
    clock = Clock()
    room = Room(tmp_path, 100, wait=0, clock=clock)
    first = take(room, tmp_path, "a", 100)
    with pytest.raises(VolumeUnusable):
        take(room, tmp_path, "b", 100)
    shutil.rmtree(first)
    with pytest.raises(VolumeUnusable):
        take(room, tmp_path, "b", 100)
    clock.now += HOPELESS_LOOK_SECONDS
    take(room, tmp_path, "b", 100)


def test_a_dump_that_can_never_fit_does_not_wait(tmp_path: Path) -> None:
    room = Room(tmp_path, 100, wait=LONG)
    with pytest.raises(VolumeUnusable, match="one dump alone"):
        take(room, tmp_path, "a", 101)
    take(room, tmp_path, "b", 100)


def test_what_stood_there_before_and_what_is_being_written_count(tmp_path: Path) -> None:
    put(tmp_path, "old", 50)
    room = Room(tmp_path, 100, wait=0)
    with room.hold(tmp_path / "a", 40, room.deadline()), pytest.raises(VolumeUnusable):
        take(room, tmp_path, "b", 20)
    take(room, tmp_path, "c", 10)


def test_what_was_not_written_after_all_counts_no_more(tmp_path: Path) -> None:
    room = Room(tmp_path, 100, wait=0)
    with pytest.raises(OSError, match="broken"), room.hold(tmp_path / "a", 100, room.deadline()):
        raise OSError("broken")
    take(room, tmp_path, "b", 100)


def test_a_full_file_system_is_waited_for(tmp_path: Path) -> None:
    free = [10]
    room = Room(tmp_path, 1000, wait=LONG, free=lambda _: free[0])
    writer = threading.Thread(target=take, args=(room, tmp_path, "a", 20), daemon=True)
    writer.start()
    writer.join(0.1)
    assert writer.is_alive()
    free[0] = 20
    writer.join(LONG)
    assert (tmp_path / "a").exists()


def test_space_that_another_took_meanwhile_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = RidLayout(tmp_path, make_card(), wait=LONG)
    put_, refusals = layout._put, iter([OSError(28, "No space left on device")] * 3)

    def refused_thrice(buffers: list[memoryview], final: Path) -> None:
        for error in refusals:
            raise error
        put_(buffers, final)

    monkeypatch.setattr(layout, "_put", refused_thrice)
    layout.write(make_dump("a", [1]))
    assert (tmp_path / "req_a").exists()


def test_data_parallel_ranks_share_the_limit(tmp_path: Path) -> None:
    size, place = size_of_a_dump(tmp_path), tmp_path / "dumps"
    card = make_card()
    card.ranks["dp"] = 2
    layouts = [RidLayout(place, card, limit=4 * size, wait=0) for _ in range(2)]

    def write(layout: RidLayout, name: str) -> bool:
        dump: Dump = make_dump(name, [1, 2, 3])
        try:
            layout.write(dump)
        except VolumeUnusable:
            return False
        return True

    for rank, layout in enumerate(layouts):
        assert [write(layout, f"{rank}{n}") for n in range(3)] == [True, True, False]


def test_the_limit_is_half_of_the_file_system(tmp_path: Path) -> None:
    found = os.statvfs(tmp_path)
    assert default_limit(tmp_path) == found.f_blocks * found.f_frsize // 2
    assert 0 < (free_bytes(tmp_path) or 0) <= found.f_blocks * found.f_frsize
    assert free_bytes(tmp_path / "gone") is None
