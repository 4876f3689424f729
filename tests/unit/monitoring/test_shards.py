from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsqueue.monitoring.shards import draw

SHARDS = st.sets(st.integers(0, 40))


def bitmap(shards: set[int]) -> bytes:
    bits = bytearray(max(shards, default=-1) // 8 + 1)
    for shard in shards:
        bits[shard // 8] |= 0x80 >> shard % 8
    return bytes(bits)


@given(st.integers(0, 40), SHARDS, SHARDS, SHARDS, st.lists(st.integers(0, 2), max_size=40), st.booleans())
def test_each_shard_has_the_letter_of_its_state(
    shards: int, ended: set[int], queued: set[int], leased: set[int], troubled: list[int], everything: bool
) -> None:
    ended = {shard for shard in ended if shard < shards}
    drawn = draw(shards, bitmap(ended), range(shards) if everything else sorted(queued), leased, troubled[:shards])
    assert len(drawn) == shards
    for shard, letter in enumerate(drawn):
        if shard in ended:
            assert letter == ("f" if troubled[shard : shard + 1] > [0] else "e")
        elif shard in leased:
            assert letter == "w"
        else:
            assert letter == ("q" if everything or shard in queued else ".")


@pytest.mark.parametrize("shard", [-1, 5, 1 << 40])
def test_a_shard_that_the_run_does_not_have_is_passed_over(shard: int) -> None:
    assert draw(5, b"", [shard], [shard], []) == "....."
