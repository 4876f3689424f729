"""Which shards the ledger accounts for, against counting one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsqueue.ledger.accounts import accounted, count_bits


def bitmap(indices: set[int]) -> bytes:
    """As Redis' SETBIT makes it: no longer than the highest bit needs."""
    bits = bytearray(max(indices, default=-1) // 8 + 1)
    for index in indices:
        bits[index // 8] |= 0x80 >> index % 8
    return bytes(bits)


@given(st.sets(st.integers(0, 90)), st.integers(0, 90), st.integers(0, 90))
def test_bits_are_counted_between_any_boundaries(ones: set[int], a: int, b: int) -> None:
    first, last = sorted((a, b))
    assert count_bits(bitmap(ones), first, last) == len(ones & set(range(first, last)))


@given(st.integers(1, 60), st.integers(1, 13), st.data())
def test_a_shard_is_accounted_for_when_each_of_its_samples_is(samples: int, size: int, data: st.DataObject) -> None:
    shards = range(-(-samples // size))
    given_up = data.draw(st.sets(st.integers(0, samples - 1)))
    # Mostly done, or hardly any shard would ever be accounted for.
    missing = data.draw(st.sets(st.integers(0, samples - 1), max_size=3))
    done = set(range(samples)) - given_up - missing
    given_up -= missing
    wanted = {shard for shard in shards if not missing & set(range(shard * size, min((shard + 1) * size, samples)))}
    assert accounted(bitmap(done), given_up, samples, size, shards) == wanted


def test_only_the_shards_asked_for_are_named() -> None:
    assert accounted(b"\xff", (), 8, 2, [1, 3]) == {1, 3}


@pytest.mark.parametrize("done", [b"", b"\x00", b"\xfe"])
def test_a_sample_without_an_ending_leaves_its_shard_out(done: bytes) -> None:
    assert accounted(done, (), 8, 8, [0]) == set()
