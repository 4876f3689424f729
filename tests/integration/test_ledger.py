"""The ledger's leases and claims, script by script, against a real Redis."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hsqueue.contracts.errors import LeaseLost
from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.records import Counts, Refusal
from tests.support.ledger import INFO, SAMPLES, TTL, done, expire, granted, skipped
from tests.support.redis import RedisServer

SHORT = 0.05


def test_what_was_created_is_known(ledger: Ledger) -> None:
    assert ledger.info() == INFO
    assert ledger.counts(SAMPLES) == Counts(SAMPLES, 0, 0, 0, 0)
    assert ledger.counts(SAMPLES).pending == SAMPLES


def test_a_run_that_redis_does_not_know_has_no_info_and_no_lease(redis: RedisServer) -> None:
    ledger = Ledger(redis.client(), redis.url, "unknown")
    assert ledger.info() is None
    assert ledger.acquire(0, "a", TTL) == Refusal("unknown")
    assert ledger.claim([0, 1], None) == []


def test_creating_again_voids_every_lease_and_forgets_every_ending(ledger: Ledger) -> None:
    lease = granted(ledger)
    ledger.commit(lease, done(0), [skipped(1)])
    ledger.create(replace(INFO, epoch=4), done(7), [skipped(8)], [1])
    assert ledger.counts(SAMPLES) == Counts(SAMPLES, 1, 1, 0, 107)
    assert not ledger.renew(lease, TTL)
    with pytest.raises(LeaseLost):
        ledger.commit(lease, done(2))
    assert granted(ledger).fence > lease.fence


def test_a_dropped_run_is_forgotten(ledger: Ledger) -> None:
    granted(ledger)
    ledger.drop()
    assert ledger.info() is None
    assert ledger.client.keys("hsq:{r1}:*") == []


# --- acquire, renew, release, reclaim ----------------------------------------------------------------------


def test_a_fence_is_the_epoch_and_a_counter(ledger: Ledger) -> None:
    fences = [granted(ledger, shard).fence for shard in range(3)]
    assert fences == [(3 << 32) + 1, (3 << 32) + 2, (3 << 32) + 3]


def test_a_fence_of_a_late_epoch_loses_no_digit(ledger: Ledger) -> None:
    ledger.create(replace(INFO, epoch=999_999), (), (), ())
    ledger.client.set(ledger.keys.fence, (1 << 32) - 2)
    assert granted(ledger).fence == (999_999 << 32) + (1 << 32) - 1


def test_a_held_shard_is_refused_and_its_holder_named(ledger: Ledger) -> None:
    lease = granted(ledger, owner="gpu0@node:/dev/shm/a")
    assert ledger.acquire(0, "b", TTL) == Refusal("held", lease.holder)
    assert ledger.holders() == {0: "gpu0@node:/dev/shm/a"}


def test_an_owner_cannot_take_its_own_shard_twice(ledger: Ledger) -> None:
    granted(ledger)
    assert isinstance(ledger.acquire(0, "a", TTL), Refusal)


def test_an_expired_lease_goes_to_the_next_with_a_higher_fence(ledger: Ledger) -> None:
    first = granted(ledger)
    expire(ledger, 0)
    second = granted(ledger, owner="b")
    assert second.fence > first.fence
    assert (first.attempt, second.attempt) == (1, 2)
    assert ledger.lease_attempts([0, 1]) == {0: 2}
    assert not ledger.renew(first, TTL)


def test_expiry_is_by_the_clock_of_redis(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clocks of this machine do not enter."""
    monkeypatch.setattr("time.time", lambda: 4e9)
    monkeypatch.setattr("time.monotonic", lambda: 4e9)
    granted(ledger, ttl=TTL)
    seconds, microseconds = ledger.client.time()
    expiry = ledger.client.zscore(ledger.keys.leases, "0")
    assert expiry == pytest.approx(seconds * 1000 + microseconds / 1000 + TTL * 1000, abs=5000)
    assert isinstance(ledger.acquire(0, "b", TTL), Refusal)


def test_a_lease_ends_when_its_time_has_passed(ledger: Ledger) -> None:
    lease = granted(ledger, ttl=SHORT)
    while isinstance(ledger.acquire(0, "b", TTL), Refusal):
        """Redis' clock decides; every look is a round trip."""
    assert not ledger.renew(lease, TTL)


def test_a_renewed_lease_lives_longer(ledger: Ledger) -> None:
    lease = granted(ledger, ttl=1.0)
    before = ledger.client.zscore(ledger.keys.leases, "0")
    assert ledger.renew(lease, TTL)
    assert ledger.client.zscore(ledger.keys.leases, "0") > before + 50_000


def test_an_expired_lease_that_nobody_took_can_be_renewed(ledger: Ledger) -> None:
    lease = granted(ledger)
    expire(ledger, 0)
    assert ledger.renew(lease, TTL)
    assert isinstance(ledger.acquire(0, "b", TTL), Refusal)


def test_a_lease_given_back_is_free_at_once_and_cannot_be_renewed(ledger: Ledger) -> None:
    lease = granted(ledger)
    ledger.release(lease)
    assert not ledger.renew(lease, TTL)
    assert ledger.holders() == {}
    granted(ledger, owner="b")


def test_a_zombie_cannot_release_its_successors_lease(ledger: Ledger) -> None:
    zombie = granted(ledger)
    expire(ledger, 0)
    successor = granted(ledger, owner="a")
    ledger.release(zombie)
    assert ledger.renew(successor, TTL)


def test_a_restarted_worker_drops_its_own_leases_and_no_others(ledger: Ledger) -> None:
    for shard, owner in enumerate(["a", "a b", "a", "b", "aa"]):
        granted(ledger, shard, owner)
    assert sorted(ledger.reclaim("a")) == [0, 2]
    assert ledger.holders() == {1: "a b", 3: "b", 4: "aa"}
    assert granted(ledger, 0, "b").attempt == 2


# --- claim --------------------------------------------------------------------------------------------------


def test_of_two_claims_the_first_gets_each_shard(ledger: Ledger) -> None:
    assert ledger.claim([0, 1], None) == [0, 1]
    assert ledger.claim([0, 1, 2], None) == [2]


def test_a_leased_shard_is_not_claimed_and_an_expired_one_is(ledger: Ledger) -> None:
    granted(ledger, 0)
    granted(ledger, 1)
    expire(ledger, 1)
    assert ledger.claim([0, 1, 2], None) == [1, 2]


def test_a_queued_shard_is_claimed_again_after_the_grace_only(ledger: Ledger) -> None:
    ledger.claim([0], None)
    assert ledger.claim([0], 3600.0) == []
    ledger.client.zincrby(ledger.keys.queued, -3_600_000, "0")
    assert ledger.claim([0], None) == []
    assert ledger.claim([0], 3600.0) == [0]
    assert ledger.claim([0], 3600.0) == []


def test_a_claim_taken_back_or_worked_off_is_open(ledger: Ledger) -> None:
    ledger.claim([0, 1, 2], None)
    ledger.unqueue([0])
    ledger.unqueue([])
    ledger.release(granted(ledger, 1))
    assert ledger.claim([0, 1, 2], None) == [0, 1]


def test_thousands_of_shards_are_claimed_at_once(ledger: Ledger) -> None:
    shards = list(range(2500))
    assert ledger.claim(shards, None) == shards
    assert ledger.claim(shards, None) == []
