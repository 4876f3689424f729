"""How fast a run goes, from the marks that the ledger keeps: pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

WINDOW = 300.0
"""Seconds that count as of late."""
BUCKET = 10.0
PLACES = 60
"""Buckets that the ledger keeps, seconds each; pace.lua has the same numbers."""


@dataclass(frozen=True, slots=True)
class Pace:
    """recent: tokens a second over the last five minutes; of a run without pending samples, its last five.
    overall: the same since the ledger began, pauses of more than five minutes left out.
    seconds_left: by `recent`; None where nothing moves. began: Unix time of the first lease; None before it.
    idle: seconds since a commit recorded something, or since work began; 0 where nothing is pending.
    """

    recent: float
    overall: float
    seconds_left: float | None
    began: float | None
    idle: float


NO_PACE = Pace(0.0, 0.0, None, None, 0.0)


def pace_of(marks: Mapping[str, str], now: float, left: float, pending: bool) -> Pace:
    """marks: the ledger's hash ``pace``. now: Unix time by Redis' clock. left: tokens to come.

    Raises ValueError or KeyError for marks that pace.lua does not write.
    """
    if "began" not in marks:
        return NO_PACE
    began, resumed = int(marks["began"]) / 1000, int(marks["resumed"]) / 1000
    newest = max(int(marks.get("last", 0)) / 1000, resumed)
    until = max(now, newest) if pending else newest
    worked = int(marks.get("worked", 0)) / 1000 + (until - newest if until - newest <= WINDOW else 0.0)
    recent = _recent(marks, until, resumed)
    return Pace(
        recent=round(recent, 1),
        overall=round(int(marks.get("tokens", 0)) / worked, 1) if worked > 0 else 0.0,
        seconds_left=(round(left / recent, 1) if recent > 0 else None) if pending else 0.0,
        began=began,
        idle=round(until - newest, 1),
    )


def _recent(marks: Mapping[str, str], until: float, resumed: float) -> float:
    newest = int(until // BUCKET)
    first = max(newest - int(WINDOW // BUCKET) + 1, int(resumed // BUCKET))
    tokens = 0
    for place in range(PLACES):
        if str(place) in marks:
            bucket, count = marks[str(place)].split(" ")
            tokens += int(count) if first <= int(bucket) <= newest else 0
    seconds = until - max(first * BUCKET, resumed)
    return tokens / seconds if seconds >= 1.0 else 0.0


def tokens_left(planned: int, done: int, pending: int, given_up: int) -> float:
    """Tokens of the pending samples, guessed: a given-up sample has as many as a pending one."""
    rest = max(0, planned - done)
    return rest * pending / (pending + given_up) if pending else 0.0
