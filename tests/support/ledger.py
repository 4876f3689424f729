"""A ledger of a small run in a real Redis, and what is done to it."""

from __future__ import annotations

from hsqueue.contracts.sample import Ending, GivenUp, Published
from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.records import Lease, LedgerInfo

TTL = 60.0
SAMPLES, SHARDS, SIZE = 20, 5, 4
INFO = LedgerInfo("r1", "/run", SAMPLES, SHARDS, SIZE, "hsq.q", 3, 2190, 100, "models/tiny")


def granted(ledger: Ledger, shard: int = 0, owner: str = "a", ttl: float = TTL) -> Lease:
    lease = ledger.acquire(shard, owner, ttl)
    assert isinstance(lease, Lease)
    return lease


def expire(ledger: Ledger, shard: int) -> None:
    """As if the lease's time to live had passed by Redis' clock."""
    ledger.client.zadd(ledger.keys.leases, {str(shard): 1})


def done(*indices: int) -> list[Published]:
    """Sample i has 100 + i tokens."""
    return [Published(index, 100 + index, 1000, "") for index in indices]


def skipped(index: int, ending: Ending = Ending.SKIPPED) -> GivenUp:
    return GivenUp(index, ending, 2, "SampleTooLong", 'it\'s "long" ☃ {}')
