"""The plan of a soak: the same for a seed, fair to every kind, and never two faults at one place."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.chaos.kinds import kinds
from tests.chaos.schedule import Planned, make_schedule, next_due

SAMPLES, COUNT = 37312, 216
KINDS = kinds(2)


def test_a_seed_makes_one_plan() -> None:
    assert make_schedule(7, KINDS, SAMPLES, COUNT) == make_schedule(7, KINDS, SAMPLES, COUNT)
    assert make_schedule(7, KINDS, SAMPLES, COUNT) != make_schedule(8, KINDS, SAMPLES, COUNT)


@pytest.mark.parametrize("seed", range(5))
def test_every_kind_gets_its_turns_in_time_and_place(seed: int) -> None:
    plan = make_schedule(seed, KINDS, SAMPLES, COUNT)
    assert [p.number for p in plan] == list(range(COUNT))
    assert [p.at for p in plan] == sorted(p.at for p in plan)
    assert plan[0].at >= SAMPLES // 100
    assert plan[-1].at < SAMPLES * 9 // 10, "enough is left to do after the last"
    counts = Counter(p.kind for p in plan)
    assert set(counts) == set(KINDS)
    assert max(counts.values()) - min(counts.values()) <= 1
    for p in plan:
        assert p.place in KINDS[p.kind].places
        assert KINDS[p.kind].seconds[0] <= p.seconds <= KINDS[p.kind].seconds[1]
    assert {p.place for p in plan} == {"node0", "node1", "redis", "volume", "producer"}


def test_the_bar_of_kinds_is_met() -> None:
    assert len(KINDS) >= 12


def planned(number: int, at: int, place: str) -> Planned:
    return Planned(number, at, "kind", place, 1.0, 0)


def test_what_is_due_waits_for_its_place_and_keeps_its_order_there() -> None:
    waiting = [planned(0, 10, "a"), planned(1, 10, "a"), planned(2, 11, "b"), planned(3, 50, "c")]
    assert next_due(waiting, 9, set()) is None
    assert next_due(waiting, 10, set()) == waiting[0]
    assert next_due(waiting, 10, {"a"}) is None
    assert next_due(waiting, 11, {"a"}) == waiting[2]
    assert next_due(waiting, 49, {"a", "b"}) is None
    assert next_due(waiting[1:], 49, {"b"}) == waiting[1]
