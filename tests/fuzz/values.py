"""Nasty JSON values, and random changes of good ones."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, 10**40, -(10**40), 0.5, 1e308, float("nan"),
    float("inf"), "", " ", "0", "-1", "1e9", "٣", "r1", "a" * 300, "../../etc/passwd", "/etc/passwd", "a/b", "a\0b",
    "\ud800", "é" * 80, "\x1b[31m", "line\nline", "hsq.r1.0.1.0", "{}", "[]", "null", "NaN", "[" * 3000, "9" * 5000,
    [], [[]], [0], [None], ["x"], [2**63], [1] * 500, {}, {"a": {}}, {"__class__": "os.system"}, {"": ""},
)  # fmt: skip


def odd(dice: random.Random) -> Any:
    return copy.deepcopy(dice.choice(ODD))


def changed(value: Any, dice: random.Random) -> Any:
    """A copy of a JSON value in which one node was replaced, removed, doubled, nudged or exchanged."""
    made = copy.deepcopy(value)
    nodes = list(_nodes(made))
    if not nodes or dice.random() < 0.02:
        return odd(dice)
    holder, key = dice.choice(nodes)
    how = dice.randrange(6)
    if how == 0:
        holder[key] = odd(dice)
    elif how == 1:
        del holder[key]
    elif how == 2 and isinstance(holder, dict):
        holder[str(odd(dice))[:40]] = holder[key]
    elif how == 3 and isinstance(holder[key], int):
        holder[key] += dice.choice((-1, 1, 8, -8, 1 << 32))
    elif how == 4:
        other, place = dice.choice(nodes)
        holder[key] = copy.deepcopy(other[place]) if place in _keys(other) else odd(dice)
    else:
        holder[key] = str(holder[key])
    return made


def text(value: Any) -> str:
    """JSON as Python writes it, NaN and lone surrogates included."""
    return json.dumps(value)


def deep(dice: random.Random) -> str:
    """JSON that a recursive parser may fall over."""
    depth = dice.choice((10, 500, 5000, 100_000))
    return dice.choice(("[", '{"a":')) * depth


def _keys(holder: Any) -> Any:
    return range(len(holder)) if isinstance(holder, list) else holder


def _nodes(value: Any) -> Any:
    for key in list(_keys(value)) if isinstance(value, dict | list) else ():
        yield value, key
        yield from _nodes(value[key])
