from __future__ import annotations

import pytest

from hsqueue.contracts.errors import DumpMissing
from hsqueue.contracts.meters import BOUNDS, DUMP, ENGINE, STAGES, bucket_name, error_name
from hsqueue.monitoring.meters import meters_of
from hsworker.times import Times


def test_what_a_worker_counts_is_read_back() -> None:
    times = Times()
    for seconds in (0.001, 0.3, 0.3, 100.0):
        times.add(ENGINE, seconds)
    times.count(samples=3, bytes=1 << 40)
    times.count(**{error_name(DumpMissing("x").name): 2})
    meters = meters_of({name: str(number) for name, number in times.counters().items()})
    assert meters.stages[ENGINE].count == 4
    assert meters.stages[ENGINE].seconds == pytest.approx(100.601)
    assert meters.stages[ENGINE].mean == pytest.approx(25.15, rel=0.001)
    assert meters.stages[ENGINE].cumulative == (1, 1, 1, 1, 1, 1, 3, 3, 3, 3, 3, 3, 3, 4)
    assert meters.stages[DUMP].count == 0
    assert (meters.samples, meters.bytes, meters.failed, meters.errors) == (3, 1 << 40, 0, {"DumpMissing": 2})


@pytest.mark.parametrize("seconds", [0.0, 0.005, 0.0051, 1.0, 59.9, 60.0, 61.0, 1e9])
def test_a_time_falls_into_the_first_bucket_that_holds_it(seconds: float) -> None:
    bound = next(bound for bound in BOUNDS if seconds <= bound)
    assert bucket_name(ENGINE, seconds) == f"engine.le.{bound:g}"


def test_a_worker_that_has_done_nothing_has_every_stage_at_zero() -> None:
    meters = meters_of({})
    assert set(meters.stages) == set(STAGES)
    assert {histogram.mean for histogram in meters.stages.values()} == {0.0}


def test_only_what_was_not_told_is_told() -> None:
    times = Times()
    times.add(ENGINE, 0.3)
    first = times.untold()
    assert first == {"engine.us": 300_000, "engine.le.0.5": 1}
    times.add(ENGINE, 0.3)
    times.tell(first)
    assert times.untold() == {"engine.us": 300_000, "engine.le.0.5": 1}
    times.tell(times.untold())
    assert times.untold() == {}
