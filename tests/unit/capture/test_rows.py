from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hscapture.rows import Extend, split
from hsqueue.contracts.errors import DumpMalformed
from tests.unit.capture.states import make_states

BATCHES = st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=8)


def batch_of(sizes: list[tuple[int, bool]]) -> list[Extend]:
    return [Extend(f"r{k}", rows, 0, wanted, is_last_chunk=True) for k, (rows, wanted) in enumerate(sizes)]


@given(BATCHES)
def test_every_request_gets_its_own_rows_whoever_else_wants_none(sizes: list[tuple[int, bool]]) -> None:
    owners = [k for k, (rows, _) in enumerate(sizes) for _ in range(rows)]
    pieces = split(batch_of(sizes), make_states(owners))
    assert [piece.rid for piece in pieces] == [f"r{k}" for k, (_, wanted) in enumerate(sizes) if wanted]
    for piece in pieces:
        number = int(piece.rid[1:])
        assert piece.states.input_ids.tolist() == [number] * sizes[number][0]
        assert piece.states.aux[:, 0].tolist() == [number + 2 / 16] * sizes[number][0]
        assert piece.states.last is not None
        assert piece.states.last[:, 0].tolist() == [number + 0.5] * sizes[number][0]


@given(BATCHES, st.integers(-3, 3).filter(bool))
def test_rows_that_do_not_add_up_are_nobodys(sizes: list[tuple[int, bool]], surplus: int) -> None:
    total = sum(rows for rows, _ in sizes)
    states = make_states([0] * max(0, total + surplus))
    with pytest.raises(DumpMalformed, match=f"expected {total}, found {states.tokens}"):
        split(batch_of(sizes), states)


def test_nothing_is_copied() -> None:
    states = make_states([1, 2, 3])
    (piece,) = split([Extend("a", 1, 0, False, True), Extend("b", 2, 0, True, True)], states)
    assert piece.states.aux.data_ptr() == states.aux[1:].data_ptr()


def test_what_was_not_captured_stays_absent() -> None:
    (piece,) = split([Extend("a", 2, 0, True, True)], make_states([1, 2], norm="pre"))
    assert piece.states.last is None
    assert piece.states.prenorm is not None
