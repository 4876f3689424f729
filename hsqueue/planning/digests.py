"""A set of digests that fits into memory for a hundred million of them."""

from __future__ import annotations

HEAD = 2
"""Bytes of a digest that choose its bucket."""


class DigestSet:
    """Of digests of `width` bytes, spread evenly. Many take about `width` bytes each, where a ``set`` takes a hundred.

    A bucket holds what follows the head of each of its digests, one behind the other. At 10^8 digests it holds 1,500 of
    them, which take about seven microseconds to search.
    """

    def __init__(self, width: int = 16) -> None:
        self._rest = width - HEAD
        self._buckets: dict[bytes, bytearray] = {}

    def add(self, digest: bytes) -> bool:
        """True where it is new."""
        head, rest = digest[:HEAD], digest[HEAD:]
        bucket = self._buckets.get(head)
        if bucket is None:
            bucket = self._buckets[head] = bytearray()
        place = bucket.find(rest)
        while place >= 0 and place % self._rest:
            place = bucket.find(rest, place + 1)
        if place < 0:
            bucket += rest
        return place < 0
