from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hscapture.assemble import Assembler, Dump
from hscapture.rows import Piece
from tests.unit.capture.states import make_piece


def ids_of(dump: Dump) -> list[int]:
    return [token for piece in dump.pieces for token in piece.states.input_ids.tolist()]


def pieces_of(rid: str, ids: list[int], cuts: list[int]) -> list[Piece]:
    """`ids` cut at the given places, the last piece marked as such."""
    edges = [0, *sorted(set(cuts)), len(ids)]
    return [make_piece(rid, ids[a:b], a, last=b == len(ids)) for a, b in itertools.pairwise(edges)]


@given(st.data())
def test_interleaved_chunks_are_stitched_by_rid(data: st.DataObject) -> None:
    prompts = {f"r{k}": list(range(100 * k, 100 * k + data.draw(st.integers(1, 9)))) for k in range(3)}
    queues = {
        rid: pieces_of(rid, ids, data.draw(st.lists(st.integers(1, len(ids) - 1))) if len(ids) > 1 else [])
        for rid, ids in prompts.items()
    }
    chunks = {rid: tuple(piece.states.tokens for piece in queue) for rid, queue in queues.items()}
    assembler, found = Assembler(), {}
    while any(queues.values()):
        rid = data.draw(st.sampled_from([rid for rid, queue in queues.items() if queue]))
        dump = assembler.add(queues[rid].pop(0))
        assert (dump is None) == bool(queues[rid])
        if dump is not None:
            found[rid] = dump
    assert {rid: ids_of(dump) for rid, dump in found.items()} == prompts
    assert {rid: dump.chunks for rid, dump in found.items()} == chunks
    assert (assembler.nbytes, len(assembler)) == (0, 0)


def test_a_retracted_request_starts_anew() -> None:
    assembler, released = Assembler(), []
    assembler.add(make_piece("a", [1, 2], 0, last=False, release=lambda: released.append("first")))
    assembler.add(make_piece("a", [1], 0, last=False))
    dump = assembler.add(make_piece("a", [2, 3], 1))
    assert dump is not None
    assert ids_of(dump) == [1, 2, 3]
    assert released == ["first"]


def test_a_prefix_that_nobody_computed_is_reported() -> None:
    dump = Assembler().add(make_piece("a", [8, 9], prefix_len=7))
    assert dump is not None
    assert (dump.prefix_len, dump.tokens) == (7, 2)


def test_a_dropped_request_leaves_nothing_behind() -> None:
    assembler, released = Assembler(), []
    assembler.add(make_piece("a", [1, 2], 0, last=False, release=lambda: released.append("a")))
    assembler.drop("a")
    assembler.drop("never seen")
    assert (released, assembler.nbytes, len(assembler)) == (["a"], 0, 0)


def test_past_the_bound_the_oldest_request_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    size = make_piece("x", [1, 2]).states.nbytes
    assembler, released = Assembler(max_bytes=2 * size), []
    for rid in ("old", "mid", "new"):
        assembler.add(make_piece(rid, [1, 2], 0, last=False, release=lambda rid=rid: released.append(rid)))  # type: ignore[misc]
    assert released == ["old"]
    assert "no dump of old" in caplog.text
    assert assembler.add(make_piece("old", [3], 2, release=lambda: released.append("old again"))) is None
    assert released == ["old", "old again"]
    dump = assembler.add(make_piece("new", [3], 2))
    assert dump is not None
    assert ids_of(dump) == [1, 2, 3]


def test_a_request_given_up_works_again_when_it_starts_anew() -> None:
    size = make_piece("x", [1, 2]).states.nbytes
    assembler = Assembler(max_bytes=size)
    assembler.add(make_piece("a", [1, 2], 0, last=False))
    assembler.add(make_piece("b", [1, 2], 0, last=False))
    dump = assembler.add(make_piece("a", [1, 2], 0))
    assert dump is not None
    assert ids_of(dump) == [1, 2]


def test_requests_without_an_end_are_bounded_in_number() -> None:
    assembler = Assembler(max_requests=3)
    for number in range(10):
        assembler.add(make_piece(f"r{number}", [1], 0, last=False))
    assert len(assembler) == 3


def test_ready_and_release_reach_every_piece() -> None:
    calls: list[str] = []
    states = make_piece("a", [1]).states
    pieces = tuple(
        Piece("a", k, k == 1, states, lambda k=k: calls.append(f"ready {k}"), lambda k=k: calls.append(f"release {k}"))  # type: ignore[misc]
        for k in range(2)
    )
    dump = Dump("a", 0, pieces)
    dump.ready()
    dump.release()
    assert calls == ["ready 0", "ready 1", "release 0", "release 1"]
