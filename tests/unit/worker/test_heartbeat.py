"""What a worker says of itself, from the slots that its processes share."""

from __future__ import annotations

from pathlib import Path

import pytest

from hsworker.budget import RECENT, Budget, Limits, Slot, Totals
from hsworker.heartbeat import Rate, in_flight

LIMITS = Limits(10, 1000, 1000)


def test_both_shards_are_added_up() -> None:
    said = in_flight([Slot(1, 0.0, requests=2, tokens=50, bytes=10, fence=7), Slot(2, 0.0, requests=1, tokens=5)], 9.0)
    assert (said["requests"], said["tokens"], said["dump_bytes"], said["leases"]) == (3, 55, 10, 1)


@pytest.mark.parametrize(
    ("slots", "quiet"),
    [
        ([], 0.0),
        ([Slot(1, 0.0, requests=0, heard=1.0)], 0.0),  # it has nothing to answer
        ([Slot(1, 0.0, requests=1, heard=1.0)], 9.0),
        ([Slot(1, 0.0, requests=1, heard=1.0), Slot(2, 0.0, requests=1, heard=8.0)], 2.0),  # it answers the other shard
        ([Slot(1, 0.0, requests=1, heard=1.0), Slot(2, 0.0, requests=0, heard=8.0)], 2.0),
    ],
)
def test_an_engine_is_quiet_since_its_last_answer_to_anybody(slots: list[Slot], quiet: float) -> None:
    assert in_flight(slots, 10.0)["engine_quiet"] == quiet


def test_a_volume_is_quiet_while_something_is_written() -> None:
    assert in_flight([Slot(1, 0.0, publishing=1, published=4.0)], 10.0)["volume_quiet"] == 6.0
    assert in_flight([Slot(1, 0.0, publishing=0, published=4.0)], 10.0)["volume_quiet"] == 0.0


def test_waiting_for_the_first_answer_begins_with_the_request(tmp_path: Path, clock: list[float]) -> None:
    budget = Budget(tmp_path / "budget", LIMITS)
    share = budget.open()
    clock[0] = 100.0
    assert share.take(1, 1)
    clock[0] = 105.0
    assert share.take(1, 1)
    assert budget.slots()[0].heard == 100.0, "the second request is no answer"
    share.answered(1, None)
    assert budget.slots()[0].heard == 100.0, "an error is no answer"
    clock[0] = 107.0
    share.answered(1, 2.0)
    assert budget.slots()[0].heard == 107.0
    clock[0] = 200.0
    assert share.take(1, 1)
    assert budget.slots()[0].heard == 200.0, "in between there was nothing to wait for"


def test_a_publication_is_under_way_until_it_ends_well_or_not(tmp_path: Path, clock: list[float]) -> None:
    budget = Budget(tmp_path / "budget", LIMITS)
    share = budget.open()
    clock[0] = 10.0
    with share.publication(7):
        clock[0] = 14.0
        assert (budget.slots()[0].publishing, budget.slots()[0].published) == (1, 10.0)
    with pytest.raises(OSError, match="full"), share.publication(9):
        raise OSError("full")
    (slot,) = budget.slots()
    assert (slot.publishing, slot.published) == (0, 14.0)
    assert slot.publish_seconds == pytest.approx(4.0 / RECENT * (1 - 1 / RECENT))
    assert budget.totals() == Totals(samples=1, tokens=7)


def test_totals_outlive_a_shard_and_means_are_what_the_next_one_begins_with(tmp_path: Path) -> None:
    budget = Budget(tmp_path / "budget", LIMITS)
    share = budget.open()
    assert share.take(1, 1)
    share.answered(1, 4.0)
    with share.publication(7):
        pass
    share.close()
    assert Budget(tmp_path / "budget", LIMITS).totals() == Totals(1, 7)
    budget.open()
    (slot,) = budget.slots()
    assert (slot.answer_seconds, slot.heard) == (4.0 / RECENT, 0.0)


def test_one_slow_sample_is_no_rule_and_eight_are(tmp_path: Path) -> None:
    share = Budget(tmp_path / "budget", LIMITS).open()
    means = []
    for _ in range(RECENT):
        assert share.take(1, 1)
        share.answered(1, 2.0)
        means.append(share._budget.slots()[0].answer_seconds)
    assert means[0] < 1.0 < means[-1]


def test_the_rate_is_of_the_last_five_minutes() -> None:
    rate = Rate()
    assert rate.see(0.0, 0) == 0.0
    assert rate.see(10.0, 500) == 50.0
    for second in range(20, 400, 10):
        last = rate.see(float(second), 500 + 10 * (second - 10))
    assert last == pytest.approx(10.0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the system's monotonic clock shows to the budget."""
    now = [0.0]
    monkeypatch.setattr("hsworker.budget.time.monotonic", lambda: now[0])
    return now
