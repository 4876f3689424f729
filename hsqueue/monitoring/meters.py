"""What workers count, read back: for Prometheus and for where time goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import redis

from hsqueue.contracts.meters import BUCKETS, STAGES, error_name, spent_name
from hsqueue.ledger.connect import redis_errors
from hsqueue.ledger.keys import WORKERS, RunKeys, worker_meters

ERRORS = error_name("")
NUMBERS = ("samples", "tokens", "bytes", "skipped", "failed")


@dataclass(frozen=True, slots=True)
class Histogram:
    """counts: of each of ``hsqueue.contracts.meters.BOUNDS``, not cumulative. seconds: all together."""

    counts: tuple[int, ...]
    seconds: float

    @property
    def count(self) -> int:
        return sum(self.counts)

    @property
    def mean(self) -> float:
        return self.seconds / self.count if self.count else 0.0

    @property
    def cumulative(self) -> tuple[int, ...]:
        """How many took at most each bound; the last is all of them."""
        sums, total = [], 0
        for count in self.counts:
            total += count
            sums.append(total)
        return tuple(sums)


@dataclass(frozen=True, slots=True)
class Meters:
    """stages: by name, one of STAGES. samples, tokens, bytes: published. skipped, failed: given up.
    errors: requests that came to nothing, by the name of their error.
    """

    stages: dict[str, Histogram]
    samples: int
    tokens: int
    bytes: int
    skipped: int
    failed: int
    errors: dict[str, int]


def meters_of(found: Mapping[str, str]) -> Meters:
    """From the hash that workers add to. Raises ValueError for what they do not write."""
    stages = {
        stage: Histogram(
            tuple(int(found.get(name, 0)) for name in BUCKETS[stage]), int(found.get(spent_name(stage), 0)) / 1e6
        )
        for stage in STAGES
    }
    errors = {name.removeprefix(ERRORS): int(number) for name, number in found.items() if name.startswith(ERRORS)}
    return Meters(stages, **{name: int(found.get(name, 0)) for name in NUMBERS}, errors=errors)


def run_meters(client: redis.Redis, url: str, run: str) -> Meters:
    """Raises RedisUnreachable, ValueError."""
    with redis_errors(url):
        return meters_of(cast(dict[str, str], client.hgetall(RunKeys(run).meters)))


def worker_meters_of_all(client: redis.Redis, url: str) -> dict[str, Meters]:
    """Of every worker that was heard of within the last hour, by its name. Raises RedisUnreachable."""
    with redis_errors(url):
        workers = sorted(cast(list[str], client.hkeys(WORKERS)))
        with client.pipeline(transaction=False) as pipe:
            for worker in workers:
                pipe.hgetall(worker_meters(worker))
            replies = pipe.execute(raise_on_error=False)
    found = {}
    for worker, reply in zip(workers, replies, strict=True):
        try:
            found[worker] = meters_of(reply)
        except (ValueError, TypeError, AttributeError):
            continue
    return found
