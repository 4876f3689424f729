from __future__ import annotations

import random
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from hsqueue.planning.digests import HEAD, DigestSet

WIDTH = 4
FEW = st.lists(st.binary(min_size=WIDTH, max_size=WIDTH).map(lambda d: bytes(b % 2 for b in d)), max_size=40)
"""Of bytes 0 and 1 alone, so that they repeat, share heads, and overlap each other in a bucket."""


@given(FEW)
def test_it_is_a_set(digests: list[bytes]) -> None:
    mine, theirs = DigestSet(WIDTH), set[bytes]()
    for digest in digests:
        assert mine.add(digest) == (digest not in theirs)
        theirs.add(digest)


def test_what_two_neighbours_make_together_is_not_in_it() -> None:
    found = DigestSet(WIDTH)
    head = bytes(HEAD)
    assert found.add(head + b"ab")
    assert found.add(head + b"cd")
    assert found.add(head + b"bc")
    assert not found.add(head + b"cd")


def test_many_take_little_more_than_their_bytes() -> None:
    dice, count = random.Random(0), 600_000
    tracemalloc.start()
    try:
        found = DigestSet()
        for _ in range(count):
            found.add(dice.randbytes(16))
        size = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert size < 40 * count
