"""Whether anything is lost is answered from counts, and never wrongly in the negative; what is, from bitmaps."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from hsqueue.contracts.errors import LeaseLost
from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.records import Lease, Standing
from tests.support.ledger import SHARDS, done, expire, granted

ALL = list(range(SHARDS))
DEEDS = ("claim", "acquire", "expire", "commit", "finish", "release", "reopen", "forget", "unqueue")


def test_shards_that_nobody_sent_may_be_lost(ledger: Ledger) -> None:
    standing = ledger.standing(SHARDS)
    assert (standing.open, standing.leased, standing.queued) == (SHARDS, 0, 0)
    assert standing.may_have_lost(None)


def test_nothing_is_lost_while_every_open_shard_is_queued_leased_or_ended(ledger: Ledger) -> None:
    ledger.claim(ALL, None)
    lease = granted(ledger, 0)
    granted(ledger, 1)
    ledger.finish(lease)
    standing = ledger.standing(SHARDS)
    assert (standing.open, standing.leased, standing.queued) == (SHARDS - 1, 1, SHARDS - 2)
    assert not standing.may_have_lost(None)


def test_an_expired_lease_may_be_lost(ledger: Ledger) -> None:
    ledger.claim(ALL, None)
    granted(ledger, 0)
    expire(ledger, 0)
    assert ledger.standing(SHARDS).may_have_lost(None)


def test_a_message_is_missed_after_the_grace(ledger: Ledger) -> None:
    assert Standing(open=1, leased=0, queued=1, waited=30.0).may_have_lost(30.0)
    assert not Standing(open=1, leased=0, queued=1, waited=29.9).may_have_lost(30.0)
    assert not Standing(open=1, leased=0, queued=1, waited=1e9).may_have_lost(None)
    assert not Standing(open=0, leased=0, queued=0, waited=1e9).may_have_lost(30.0)


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happened_what_would_be_claimed_may_be_lost(ledger: Ledger, seed: int) -> None:
    dice = random.Random(seed)
    leases: list[Lease] = []
    for _ in range(40):
        shard = dice.randrange(SHARDS)
        held = dice.choice(leases) if leases else None
        match dice.choice(DEEDS):
            case "claim":
                ledger.claim(dice.sample(ALL, 2), None)
            case "acquire":
                found = ledger.acquire(shard, "a", 60.0)
                leases += [found] if isinstance(found, Lease) else []
            case "expire" if shard in ledger.live_holders():
                expire(ledger, shard)
            case "commit" if held:
                with suppress(LeaseLost):
                    ledger.commit(held, done(held.shard * 4))
            case "finish" if held:
                ledger.finish(held)
            case "release" if held:
                ledger.release(held)
            case "reopen":
                ledger.reopen(shard)
            case "forget":
                ledger.forget(shard, {shard * 4: 100})
            case "unqueue":
                ledger.unqueue([shard])
        for grace in (None, 3600.0):
            lost = ledger.standing(SHARDS).may_have_lost(grace)
            assert lost or not would_be_claimed(ledger)
        assert ledger.lost_shards(SHARDS) == sorted(would_be_claimed(ledger))
        assert ledger.queued_shards(SHARDS) == sorted(queued(ledger))


def would_be_claimed(ledger: Ledger) -> set[int]:
    """By looking at every shard, as the count does not."""
    return set(ALL) - ledger.ended_shards(SHARDS) - set(ledger.live_holders()) - queued(ledger)


def queued(ledger: Ledger) -> set[int]:
    return {int(shard) for shard in ledger.client.zrange(ledger.keys.queued, 0, -1)}


def test_overdue_shards_come_oldest_first_and_not_too_many_at_once(ledger: Ledger) -> None:
    ledger.claim(ALL, None)
    for shard, seconds in ((3, 40), (1, 50), (4, 20)):
        ledger.client.zincrby(ledger.keys.queued, -1000 * seconds, str(shard))
    assert ledger.overdue_shards(30.0) == [1, 3]
    assert ledger.overdue_shards(30.0, limit=1) == [1]
    assert ledger.overdue_shards(3600.0) == []
