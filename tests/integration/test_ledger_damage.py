"""What is not a ledger is told as damage of its run, not as a Redis that is away: that one would hide every run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from prometheus_client import generate_latest
from prometheus_client.registry import CollectorRegistry

from hsqueue.contracts.errors import LedgerDamaged
from hsqueue.ledger.keys import RunKeys
from hsqueue.ledger.ledger import Ledger
from hsqueue.monitoring.exporter import Exporter
from tests.support.ledger import SAMPLES, SHARDS, TTL, done, granted
from tests.support.redis import RedisServer

USES: dict[str, tuple[str, Callable[[Ledger], object]]] = {
    "info": ("info", lambda ledger: ledger.info()),
    "counts": ("counts", lambda ledger: ledger.counts(SAMPLES)),
    "done": ("done", lambda ledger: ledger.is_done(0)),
    "done, all": ("done", lambda ledger: ledger.done_in(range(SAMPLES))),
    "given up": ("given_up", lambda ledger: ledger.given_up()),
    "suspects": ("suspects", lambda ledger: ledger.suspects(range(SAMPLES))),
    "ended": ("ended", lambda ledger: ledger.ended_shards(SHARDS)),
    "holders": ("holders", lambda ledger: ledger.live_holders()),
    "attempts": ("attempts", lambda ledger: ledger.lease_attempts([0])),
    "fence": ("fence", lambda ledger: ledger.newest_fence()),
    "a lease": ("leases", lambda ledger: ledger.acquire(1, "b", TTL)),
    "a commit": ("done", lambda ledger: ledger.commit(granted(ledger), done(0))),
    "a claim": ("queued", lambda ledger: ledger.claim([0], None)),
}


@pytest.mark.parametrize("use", USES)
def test_a_key_of_another_kind_is_damage(ledger: Ledger, use: str) -> None:
    key, call = USES[use]
    name = getattr(ledger.keys, key)
    ledger.client.delete(name)
    ledger.client.rpush(name, "x")
    with pytest.raises(LedgerDamaged, match="run r1"):
        call(ledger)


def test_a_damaged_run_does_not_hide_redis_from_prometheus(ledger: Ledger, redis: RedisServer) -> None:
    client, name = redis.client(), RunKeys("r1").holders
    client.delete(name)
    client.rpush(name, "x")
    registry = CollectorRegistry()
    registry.register(Exporter(client, redis.url))
    assert "hsqueue_redis_up 1.0" in generate_latest(registry).decode()
