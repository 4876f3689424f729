"""The keeper of a lease against a real Redis: renewed in time, and lost the moment it must be."""

from __future__ import annotations

import threading
import time

import pytest

from hsqueue.contracts.errors import LeaseLost
from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.records import Refusal
from hsworker import lease as leases
from hsworker.lease import LeaseKeeper
from tests.support.ledger import expire, granted
from tests.support.redis import RedisServer
from tests.support.waiting import await_true


def expiry(ledger: Ledger, shard: int = 0) -> float:
    found = ledger.client.zscore(ledger.keys.leases, str(shard))
    assert isinstance(found, float)
    return found


def test_a_lease_is_renewed_again_and_again(ledger: Ledger) -> None:
    ttl = 0.6
    lease = granted(ledger, ttl=ttl)
    first = expiry(ledger)
    with LeaseKeeper(ledger, lease, ttl) as keeper:
        await_true(lambda: expiry(ledger) > first + 2 * ttl * 1000, "it does not happen")
        keeper.check()
        assert isinstance(ledger.acquire(0, "b", ttl), Refusal)


def test_a_lease_is_renewed_at_a_third_of_its_time(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float | None] = []
    lease = granted(ledger)
    keeper = LeaseKeeper(ledger, lease, 60.0)
    monkeypatch.setattr(keeper._stop, "wait", lambda pause: pauses.append(pause) or len(pauses) > 2)
    with keeper:
        await_true(lambda: len(pauses) > 2, "it does not happen")
    assert pauses[:3] == [20.0, 20.0, 20.0]


def test_a_lease_that_another_has_is_lost_at_the_next_renewal(ledger: Ledger) -> None:
    lease = granted(ledger, ttl=0.3)
    with LeaseKeeper(ledger, lease, 0.3) as keeper:
        expire(ledger, 0)
        granted(ledger, owner="b")
        await_true(lambda: not keeper.valid, "it does not happen")
        with pytest.raises(LeaseLost):
            keeper.check()


def test_a_worker_that_was_frozen_longer_than_its_lease_publishes_nothing(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its thread has run again, by its own clock alone."""
    now = 1000.0
    monkeypatch.setattr(leases, "boot_seconds", lambda: now)
    keeper = LeaseKeeper(ledger, granted(ledger), 60.0)
    now = 1059.9
    keeper.check()
    now = 1060.0
    with pytest.raises(LeaseLost):
        keeper.check()


def test_the_time_that_a_grant_took_to_arrive_counts_against_it(ledger: Ledger) -> None:
    asked = leases.boot_seconds() - 61.0
    keeper = LeaseKeeper(ledger, granted(ledger), 60.0, asked)
    with pytest.raises(LeaseLost):
        keeper.check()


def test_a_redis_that_is_away_costs_the_lease_only_when_its_time_is_over(
    redis: RedisServer, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hsqueue.ledger.connect.SOCKET_TIMEOUT", 0.1)
    mine = Ledger(redis.client(), redis.url, "r1")
    ttl = 3.0
    with LeaseKeeper(mine, granted(mine, ttl=ttl), ttl) as keeper:
        redis.freeze()
        began = time.monotonic()
        try:
            await_true(lambda: not keeper.valid, "it does not happen")
        finally:
            redis.thaw()
        assert time.monotonic() - began > ttl / 2
        with pytest.raises(LeaseLost):
            keeper.check()


def test_a_keeper_ends_its_thread(ledger: Ledger) -> None:
    before = threading.active_count()
    with LeaseKeeper(ledger, granted(ledger), 60.0):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
