"""Bitmaps as Redis keeps them: the highest bit of a byte first; missing bytes count as zero."""

from __future__ import annotations

import re
from collections.abc import Iterable

ONES = [tuple(bit for bit in range(8) if byte & 0x80 >> bit) for byte in range(256)]
"""For each byte, which of its bits are set."""


def bitmap(positions: Iterable[int], size: int) -> bytes:
    """A bitmap of `size` bits with those at `positions` set."""
    data = bytearray((size + 7) // 8)
    for position in positions:
        data[position // 8] |= 0x80 >> position % 8
    return bytes(data)


def positions_of(data: bytes) -> list[int]:
    """Positions of the bits that are set, ascending; the cost is that of the bytes that are not zero."""
    found: list[int] = []
    for match in re.finditer(rb"[^\0]", data):
        base = 8 * match.start()
        found += [base + bit for bit in ONES[match[0][0]]]
    return found


def unset(size: int, *bitmaps: bytes) -> list[int]:
    """Positions below `size` that are set in none of `bitmaps`, ascending."""
    length = (size + 7) // 8
    merged = 0
    for data in bitmaps:
        merged |= int.from_bytes(data[:length].ljust(length, b"\0"), "big")
    clear = ~merged & (1 << 8 * length) - 1
    return [position for position in positions_of(clear.to_bytes(length, "big")) if position < size]
