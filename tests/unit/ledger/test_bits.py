"""Bitmaps as Redis keeps them, against sets of numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hsqueue.ledger.bits import bitmap, positions_of, unset

SIZE = 70
POSITIONS = st.sets(st.integers(0, SIZE - 1))


@given(POSITIONS)
def test_what_is_set_is_found(positions: set[int]) -> None:
    data = bitmap(positions, SIZE)
    assert len(data) == 9
    assert positions_of(data) == sorted(positions)


def test_the_highest_bit_of_a_byte_comes_first() -> None:
    assert bitmap([0, 10], 16) == b"\x80\x20"


@given(st.lists(POSITIONS, max_size=3), st.integers(0, SIZE))
def test_unset_is_what_no_bitmap_has(chosen: list[set[int]], size: int) -> None:
    found = unset(size, *(bitmap(positions, SIZE) for positions in chosen))
    assert found == sorted(set(range(size)).difference(*chosen))


@given(POSITIONS)
def test_bytes_that_are_missing_are_zeros(positions: set[int]) -> None:
    """Redis ends a bitmap behind the last byte that was ever written."""
    assert unset(SIZE, bitmap(positions, SIZE).rstrip(b"\0")) == unset(SIZE, bitmap(positions, SIZE))
