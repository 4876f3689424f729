"""Whether the ledger accounts for every sample of a shard: pure functions over its bitmaps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


def accounted(done: bytes, given_up: Iterable[int], samples: int, shard_size: int, shards: Iterable[int]) -> set[int]:
    """Those of `shards` of which every sample is done or given up.

    done: a bit for each sample, the highest of a byte first; missing bytes count as zero. given_up: indices that
    are not done. samples, shard_size: of the run.
    """
    given_in = Counter(index // shard_size for index in given_up)
    found = set()
    for shard in shards:
        first = shard * shard_size
        last = min(first + shard_size, samples)
        if count_bits(done, first, last) + given_in[shard] == last - first:
            found.add(shard)
    return found


def count_bits(bitmap: bytes, first: int, last: int) -> int:
    """Ones among the bits first..last-1."""
    part = bitmap[first // 8 : -(-last // 8)].ljust(-(-last // 8) - first // 8, b"\0")
    bits = int.from_bytes(part, "big")
    bits >>= -last % 8
    return (bits & ((1 << (last - first)) - 1)).bit_count()
