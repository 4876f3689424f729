from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hscapture.assemble import Dump
from hscapture.ridlayout import RidLayout
from hscapture.writer import DumpWriter
from tests.unit.capture.states import make_card, make_dump, make_piece

WAIT = 10.0
"""Seconds after which a test gives an event up."""


class Gate:
    """A layout that writes when it is told to."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.entered = threading.Semaphore(0)
        self.open = threading.Semaphore(0)

    def write(self, dump: Dump) -> None:
        self.entered.release()
        assert self.open.acquire(timeout=WAIT)
        self.written.append(dump.rid)


def in_thread(call: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def test_dumps_arrive_on_disk(tmp_path: Path) -> None:
    writer = DumpWriter(RidLayout(tmp_path, make_card()).write, threads=3)
    for number in range(20):
        writer.submit(make_dump(f"r{number}", [number, 1, 2]))
    writer.close(WAIT)
    assert len(list(tmp_path.glob("req_*/hidden.safetensors"))) == 20
    assert writer.stats.written == 20
    assert writer.stats.bytes == 20 * make_dump("x", [0, 1, 2]).nbytes
    assert writer.stats.failed == 0


def test_a_submitter_waits_while_too_much_is_pending() -> None:
    gate = Gate()
    size = make_dump("a", [1]).nbytes
    writer = DumpWriter(gate.write, threads=1, pending_bytes=2 * size)
    writer.submit(make_dump("a", [1]))
    writer.submit(make_dump("b", [1]))
    third = in_thread(lambda: writer.submit(make_dump("c", [1])))
    assert gate.entered.acquire(timeout=WAIT)
    third.join(0.1)
    assert third.is_alive()
    gate.open.release()
    third.join(WAIT)
    assert not third.is_alive()
    gate.open.release(2)
    writer.close(WAIT)
    assert gate.written == ["a", "b", "c"]
    assert writer.stats.waited > 0.05


def test_a_dump_larger_than_the_bound_passes_alone(tmp_path: Path) -> None:
    writer = DumpWriter(RidLayout(tmp_path, make_card()).write, pending_bytes=1)
    writer.submit(make_dump("a", [1, 2, 3]))
    writer.submit(make_dump("b", [1, 2, 3]))
    writer.close(WAIT)
    assert writer.stats.written == 2


def test_a_failure_costs_one_dump_and_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    writer = DumpWriter(RidLayout(tmp_path, make_card()).write)
    (tmp_path / "req_a").mkdir()
    for rid in ("a", "../evil", "b"):
        writer.submit(make_dump(rid, [1]))
    writer.close(WAIT)
    assert (writer.stats.written, writer.stats.failed) == (1, 2)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert all("\n" not in line for line in lines)
    assert "no dump of a: a dump of this request exists already" in lines[0]
    assert "no dump of ../evil" in lines[1]


def test_states_are_given_back_whatever_happens() -> None:
    released: list[str] = []

    def write(dump: Dump) -> None:
        if dump.rid == "bad":
            raise OSError(28, "No space left on device")

    writer = DumpWriter(write)
    for rid in ("good", "bad"):
        piece = make_piece(rid, [1], release=lambda rid=rid: released.append(rid))  # type: ignore[misc]
        writer.submit(Dump(rid, 0, (piece,)))
    writer.close(WAIT)
    late = make_piece("late", [1], release=lambda: released.append("late"))
    writer.submit(Dump("late", 0, (late,)))
    assert released == ["good", "bad", "late"]


def test_drain_says_whether_anything_is_left() -> None:
    gate = Gate()
    writer = DumpWriter(gate.write)
    assert writer.drain(WAIT)
    writer.submit(make_dump("a", [1]))
    assert not writer.drain(0.01)
    gate.open.release()
    assert writer.drain(WAIT)
    writer.close(WAIT)
