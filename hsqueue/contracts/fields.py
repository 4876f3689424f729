"""Checks of single values in JSON that came from outside. Each raises ValueError, for the caller to name the file."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any


def count(table: Mapping[str, Any], name: str, least: int = 0) -> int:
    """An integer of at least `least`."""
    value = table[name]
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 1 << 63:
        raise ValueError(f"{name} is {value!r:.40}, not a count of at least {least}")
    return value


def counts(table: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """A list of integers, none negative."""
    value = table[name]
    if not isinstance(value, list):
        raise ValueError(f"{name} is {value!r:.40}, not a list")
    return tuple(count({name: item}, name) for item in value)


def text(table: Mapping[str, Any], name: str, allowed: tuple[str, ...] | None = None) -> str:
    """A string, one of `allowed` where that is given."""
    value = table[name]
    if not isinstance(value, str) or (allowed is not None and value not in allowed):
        raise ValueError(f"{name} is {value!r:.40}, not {' or '.join(allowed) if allowed else 'text'}")
    return value


def seconds(table: Mapping[str, Any], name: str) -> float:
    """A finite number."""
    value = table[name]
    if not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value):
        raise ValueError(f"{name} is {value!r:.40}, not a time")
    return float(value)
