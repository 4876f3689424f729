"""How the ledger records endings and takes them back, script by script, against a real Redis."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hsqueue.contracts.errors import LeaseLost
from hsqueue.contracts.sample import Ending
from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.records import Counts, Refusal
from tests.support.ledger import SAMPLES, SHARDS, SIZE, TTL, done, expire, granted, skipped


def test_a_commit_records_each_ending_once(ledger: Ledger) -> None:
    lease = granted(ledger)
    assert ledger.commit(lease, done(0, 1), [skipped(2), skipped(3, Ending.FAILED)]) == 4
    assert ledger.counts(SAMPLES) == Counts(SAMPLES, 2, 1, 1, 201)
    assert ledger.commit(lease, done(0, 1), [skipped(2), skipped(3, Ending.FAILED)]) == 0
    assert ledger.counts(SAMPLES) == Counts(SAMPLES, 2, 1, 1, 201)


def test_a_sample_told_twice_in_one_commit_counts_once(ledger: Ledger) -> None:
    lease = granted(ledger)
    assert ledger.commit(lease, done(0, 0, 0), [skipped(1), skipped(1)]) == 2
    assert ledger.counts(SAMPLES) == Counts(SAMPLES, 1, 1, 0, 100)


def test_endings_are_read_back_as_they_were_told(ledger: Ledger) -> None:
    ledger.commit(granted(ledger), done(0), [skipped(2), skipped(3, Ending.FAILED)])
    assert ledger.given_up() == {2: skipped(2), 3: skipped(3, Ending.FAILED)}
    assert ledger.given_up([0, 2, 17]) == {2: skipped(2)}
    assert ledger.given_up([]) == {}
    assert [ledger.is_done(index) for index in range(4)] == [True, False, False, False]


def test_a_commit_under_a_lost_lease_is_refused_and_records_nothing(ledger: Ledger) -> None:
    zombie = granted(ledger)
    expire(ledger, 0)
    granted(ledger, owner="b")
    with pytest.raises(LeaseLost):
        ledger.commit(zombie, done(0), [skipped(1)])
    assert ledger.counts(SAMPLES) == Counts(SAMPLES, 0, 0, 0, 0)
    assert ledger.done_in(range(SIZE)) == set()
    assert ledger.given_up() == {}


@pytest.mark.parametrize("change", [{"fence": 7}, {"owner": "b"}, {"shard": 1}])
def test_a_commit_under_a_lease_that_differs_in_anything_is_refused(ledger: Ledger, change: dict[str, object]) -> None:
    lease = granted(ledger)
    with pytest.raises(LeaseLost):
        ledger.commit(replace(lease, **change), done(0))  # type: ignore[arg-type]
    assert ledger.counts(SAMPLES).done == 0


def test_a_commit_under_an_expired_lease_that_nobody_took_counts(ledger: Ledger) -> None:
    lease = granted(ledger)
    expire(ledger, 0)
    assert ledger.commit(lease, done(0)) == 1


def test_done_takes_the_place_of_given_up_and_never_the_other_way(ledger: Ledger) -> None:
    lease = granted(ledger)
    ledger.commit(lease, [], [skipped(0), skipped(1, Ending.FAILED)])
    assert ledger.commit(lease, done(0, 1), []) == 2
    assert ledger.counts(SAMPLES) == Counts(SAMPLES, 2, 0, 0, 201)
    assert ledger.given_up() == {}
    assert ledger.commit(lease, [], [skipped(0)]) == 0
    assert ledger.counts(SAMPLES) == Counts(SAMPLES, 2, 0, 0, 201)


def test_an_empty_commit_is_allowed(ledger: Ledger) -> None:
    assert ledger.commit(granted(ledger), [], []) == 0


def test_an_ended_sample_is_no_suspect_any_more(ledger: Ledger) -> None:
    lease = granted(ledger)
    ledger.suspect([0, 1, 2])
    ledger.suspect([1])
    assert ledger.suspects(range(SIZE)) == {0: 1, 1: 2, 2: 1}
    ledger.commit(lease, done(0), [skipped(1)])
    assert ledger.suspects(range(SIZE)) == {2: 1}


def test_a_finished_shard_is_never_leased_or_claimed_again(ledger: Ledger) -> None:
    lease = granted(ledger, 2)
    assert ledger.finish(lease)
    assert ledger.ended_shards(SHARDS) == {2}
    assert ledger.acquire(2, "b", TTL) == Refusal("ended")
    assert ledger.claim([1, 2], 0.0) == [1]
    assert ledger.holders() == {}
    assert ledger.lease_attempts([2]) == {}


def test_a_shard_that_was_queued_again_meanwhile_is_not_queued_once_it_is_finished(ledger: Ledger) -> None:
    lease = granted(ledger)
    expire(ledger, 0)
    assert ledger.claim([0], None) == [0]
    assert ledger.finish(lease)
    assert ledger.client.zcard(ledger.keys.queued) == 0


def test_a_zombie_cannot_finish_a_shard(ledger: Ledger) -> None:
    zombie = granted(ledger)
    expire(ledger, 0)
    granted(ledger, owner="b")
    assert not ledger.finish(zombie)
    assert ledger.ended_shards(SHARDS) == set()


def test_a_reopened_shard_can_be_leased_again(ledger: Ledger) -> None:
    ledger.finish(granted(ledger))
    ledger.reopen(0)
    assert ledger.ended_shards(SHARDS) == set()
    granted(ledger)


def test_forgotten_samples_are_pending_and_their_shard_is_open(ledger: Ledger) -> None:
    lease = granted(ledger)
    ledger.suspect([1])
    ledger.commit(lease, done(0, 1), [skipped(2), skipped(3, Ending.FAILED)])
    ledger.finish(lease)
    assert ledger.forget(0, {1: 101, 2: 5, 3: 5}) == 3
    assert ledger.counts(SAMPLES) == Counts(SAMPLES, 1, 0, 0, 100)
    assert ledger.done_in(range(SIZE)) == {0}
    assert ledger.given_up() == {}
    assert ledger.ended_shards(SHARDS) == set()


def test_forgetting_what_has_not_ended_changes_nothing(ledger: Ledger) -> None:
    lease = granted(ledger)
    ledger.commit(lease, done(0))
    ledger.finish(lease)
    before = ledger.counts(SAMPLES)
    assert ledger.forget(0, {1: 9, 2: 9}) == 0
    assert ledger.forget(0, {}) == 0
    assert ledger.counts(SAMPLES) == before
    assert ledger.ended_shards(SHARDS) == {0}


def test_forgetting_twice_counts_once(ledger: Ledger) -> None:
    ledger.commit(granted(ledger), done(0))
    assert [ledger.forget(0, {0: 100}), ledger.forget(0, {0: 100})] == [1, 0]
    assert ledger.counts(SAMPLES) == Counts(SAMPLES, 0, 0, 0, 0)
