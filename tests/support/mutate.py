"""Random changes of bytes, always to something else than they were."""

from __future__ import annotations

import random

WIDTHS = (1, 1, 1, 2, 4, 16, 64, 512)


def mutated(data: bytes, dice: random.Random) -> tuple[bytes, str]:
    """Another byte string made from `data`, and what was done to it, for people."""
    while True:
        name, change = dice.choice(CHANGES)
        begin = dice.randrange(len(data) + 1)
        end = min(len(data), begin + dice.choice(WIDTHS))
        changed = change(data, begin, end, dice)
        if changed != data:
            return changed, f"{name} {begin}:{end}"


def _flip(data: bytes, begin: int, end: int, dice: random.Random) -> bytes:
    if begin == len(data):
        return data
    return data[:begin] + bytes([data[begin] ^ 1 << dice.randrange(8)]) + data[begin + 1 :]


def _noise(data: bytes, begin: int, end: int, dice: random.Random) -> bytes:
    return data[:begin] + dice.randbytes(end - begin) + data[end:]


def _zero(data: bytes, begin: int, end: int, dice: random.Random) -> bytes:
    return data[:begin] + bytes(end - begin) + data[end:]


def _zero_tail(data: bytes, begin: int, end: int, dice: random.Random) -> bytes:
    return data[:begin] + bytes(len(data) - begin)


def _cut(data: bytes, begin: int, end: int, dice: random.Random) -> bytes:
    return data[:begin] + data[end:]


def _truncate(data: bytes, begin: int, end: int, dice: random.Random) -> bytes:
    return data[:begin]


def _insert(data: bytes, begin: int, end: int, dice: random.Random) -> bytes:
    return data[:begin] + dice.randbytes(dice.choice(WIDTHS)) + data[begin:]


def _repeat(data: bytes, begin: int, end: int, dice: random.Random) -> bytes:
    return data[:end] + data[begin:]


def _digit(data: bytes, begin: int, end: int, dice: random.Random) -> bytes:
    """Another digit in place of one, so that what is left is still a number."""
    places = [k for k in range(begin, min(len(data), begin + 512)) if 48 <= data[k] <= 57]
    if not places:
        return data
    place = dice.choice(places)
    return data[:place] + str(dice.randrange(10)).encode() + data[place + 1 :]


def _splice(data: bytes, begin: int, end: int, dice: random.Random) -> bytes:
    """A piece of the data in another place of it."""
    source = dice.randrange(len(data) + 1)
    piece = data[source : source + end - begin]
    return data[:begin] + piece + data[begin + len(piece) :]


CHANGES = (
    ("flip", _flip), ("noise", _noise), ("zero", _zero), ("zero tail", _zero_tail), ("cut", _cut),
    ("truncate", _truncate), ("insert", _insert), ("repeat", _repeat), ("digit", _digit), ("splice", _splice),
)  # fmt: skip
