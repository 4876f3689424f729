"""Counters of 32 bits side by side, big-endian, as Redis' BITFIELD counts in them."""

from __future__ import annotations

import sys
from array import array


def pack(counters: array[int]) -> bytes:
    """counters: of type ``I``."""
    return _turned(array("I", counters)).tobytes()


def unpack(data: bytes) -> array[int]:
    """A counter that is not whole at the end is left out."""
    found = array("I")
    found.frombytes(data[: len(data) // 4 * 4])
    return _turned(found)


def _turned(counters: array[int]) -> array[int]:
    if sys.byteorder == "little":
        counters.byteswap()
    return counters
