"""The newest samples that came to nothing; the ledger lists so many and no more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from hsqueue.contracts.sample import GivenUp
from hsqueue.ledger.initial import NEWEST
from hsqueue.ledger.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Failure:
    """time: Unix seconds by Redis' clock; 0 where the ledger was rebuilt since."""

    time: float
    shard: int
    sample: GivenUp


def newest_failures(ledger: Ledger, shard_size: int, number: int = NEWEST) -> list[Failure]:
    """Failed samples, the newest first, then skipped ones; at most `number`, and NEWEST of a kind.

    shard_size: of the run. Raises RedisUnreachable, LedgerDamaged.
    """
    with ledger.reading():
        with ledger.client.pipeline(transaction=False) as pipe:
            for key in (ledger.keys.newest_failed, ledger.keys.newest_skipped):
                pipe.zrevrangebyscore(key, "+inf", "-inf", start=0, num=number, withscores=True)
            listed = cast(list[list[tuple[str, float]]], pipe.execute())
        times = {int(index): score / 1000 for kind in listed for index, score in kind}
        # Whatever was made pending meanwhile has no ending any more.
        given_up = ledger.given_up(list(times)[:number])
    return [Failure(times[index], index // shard_size, sample) for index, sample in given_up.items()]
