"""Which fault comes when, where and for how long: a pure function of a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """places: where it can happen. seconds: between which it lasts; (0, 0) for what is over at once."""

    places: Sequence[str]
    seconds: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Planned:
    """at: samples published when it is due. choice: for what is left to chance within the fault."""

    number: int
    at: int
    kind: str
    place: str
    seconds: float
    choice: int


def make_schedule(seed: int, kinds: Mapping[str, Kind], samples: int, count: int) -> list[Planned]:
    """`count` faults in the order of their time, between the first samples and the last tenth.

    Kinds are dealt like cards, every one of them before any comes again, so that their counts differ by one at most.
    """
    dice = random.Random(f"{seed}")
    names: list[str] = []
    while len(names) < count:
        names += dice.sample(sorted(kinds), len(kinds))
    last = samples * 9 // 10
    times = sorted(dice.randrange(samples // 100, last) for _ in range(count))
    return [
        Planned(
            number, at, name, dice.choice(kinds[name].places), round(dice.uniform(*kinds[name].seconds), 1),
            dice.randrange(1 << 30),
        )
        for number, (at, name) in enumerate(zip(times, names, strict=False))
    ]  # fmt: skip


def next_due(waiting: Sequence[Planned], published: int, busy: set[str]) -> Planned | None:
    """The first that is due and whose place has no fault at the moment; those at one place keep their order."""
    seen = set(busy)
    for planned in waiting:
        if planned.at > published:
            return None
        if planned.place not in seen:
            return planned
        seen.add(planned.place)
    return None
