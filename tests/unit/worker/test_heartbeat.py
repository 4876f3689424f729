"""What a worker says of itself, from what its processes share."""

from __future__ import annotations

import pytest

from hsworker.gauges import Reading
from hsworker.heartbeat import Rate, faring, in_flight
from hsworker.turns import Slot


def test_both_shards_are_added_up() -> None:
    said = in_flight([Slot(1, 0.0, requests=2, tokens=50, bytes=10, fence=7), Slot(2, 0.0, requests=1, tokens=5)])
    assert said == {"requests": 3, "tokens": 55, "dump_bytes": 10, "leases": 1}


@pytest.mark.parametrize(
    ("readings", "quiet"),
    [
        ([], 0.0),
        ([Reading(1, requests=0, heard=1.0)], 0.0),  # it has nothing to answer
        ([Reading(1, requests=1, heard=1.0)], 9.0),
        ([Reading(1, requests=1, heard=1.0), Reading(2, requests=1, heard=8.0)], 2.0),  # it answers the other process
        ([Reading(1, requests=1, heard=1.0), Reading(2, requests=0, heard=8.0)], 2.0),
    ],
)
def test_an_engine_is_quiet_since_its_last_answer_to_anybody(readings: list[Reading], quiet: float) -> None:
    assert faring(readings, 10.0)["engine_quiet"] == quiet


def test_a_volume_is_quiet_while_something_is_written() -> None:
    assert faring([Reading(1, publishing=1, published=4.0)], 10.0)["volume_quiet"] == 6.0
    assert faring([Reading(1, publishing=0, published=4.0)], 10.0)["volume_quiet"] == 0.0


def test_the_slower_process_counts() -> None:
    said = faring([Reading(1, answer_seconds=1.0, publish_seconds=4.0), Reading(2, answer_seconds=2.0)], 10.0)
    assert (said["answer_seconds"], said["publish_seconds"]) == (2.0, 4.0)


def test_the_rate_is_of_the_last_five_minutes() -> None:
    rate = Rate()
    assert rate.see(0.0, 0) == 0.0
    assert rate.see(10.0, 500) == 50.0
    for second in range(20, 400, 10):
        last = rate.see(float(second), 500 + 10 * (second - 10))
    assert last == pytest.approx(10.0)
