"""What one run's ledger says; nothing here changes it."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import redis

from hsqueue.contracts.errors import LedgerDamaged, RedisUnreachable
from hsqueue.contracts.sample import GivenUp
from hsqueue.contracts.work import Work
from hsqueue.ledger.bits import bitmap, positions_of, unset
from hsqueue.ledger.connect import redis_errors
from hsqueue.ledger.counters import unpack
from hsqueue.ledger.keys import RUNS, RunKeys
from hsqueue.ledger.records import EPOCH_SHIFT, Counts, LedgerInfo, given_up_from_json


class LedgerReader:
    """The ledger of `run` in the Redis behind `client`. url: named, masked, in errors.

    Every method raises RedisUnreachable where Redis does not answer, and LedgerDamaged where it holds something else.
    """

    def __init__(self, client: redis.Redis, url: str, run: str) -> None:
        self.client, self.url, self.run, self.keys = client, url, run, RunKeys(run)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Raises RedisUnreachable, and LedgerDamaged where a reply is none that this class has written."""
        try:
            with redis_errors(self.url):
                yield
        except RedisUnreachable as error:
            # A key of another kind is damage of this run alone: Redis answers, and other runs are well.
            if not isinstance(error.__cause__, redis.ResponseError) or "WRONGTYPE" not in str(error.__cause__):
                raise
            raise self._damaged(error.__cause__) from None
        except (KeyError, ValueError, TypeError, IndexError, AttributeError, ArithmeticError, RecursionError) as error:
            raise self._damaged(error) from None

    def _damaged(self, error: Exception) -> LedgerDamaged:
        return LedgerDamaged(
            f"Redis holds something else than the ledger of run {self.run} ({str(error)[:80]})",
            do="Run hsqueue ledger rebuild RUN; the volume has everything that matters.",
        )

    def info(self) -> LedgerInfo | None:
        """None where this Redis does not know the run."""
        with self.reading():
            found = cast(dict[str, str], self.client.hgetall(self.keys.info))
            return LedgerInfo.from_fields(self.run, found) if found else None

    def is_forgotten(self) -> bool:
        """Whether this Redis knows nothing of the run, not even that it was dropped."""
        with self.reading():
            return self.client.hget(RUNS, self.run) is None

    def counts(self, total: int) -> Counts:
        with self.reading():
            return Counts.from_fields(total, cast(dict[str, str], self.client.hgetall(self.keys.counts)))

    def done_in(self, indices: range) -> set[int]:
        """Indices within `indices`, which is contiguous, whose samples are done."""
        return set(self._set_bits(self.keys.done, indices))

    def done_bitmap(self, samples: int) -> bytes:
        """A bit for each sample that is done, the highest of a byte first; shorter where the last ones are not."""
        return self._bitmap(self.keys.done, range(samples))

    def is_done(self, index: int) -> bool:
        with self.reading():
            return bool(self.client.getbit(self.keys.done, index))

    def ended_shards(self, shards: int) -> set[int]:
        return set(self._set_bits(self.keys.ended, range(shards)))

    def ended_bitmap(self, shards: int) -> bytes:
        """A bit for each shard that has ended, the highest of a byte first; shorter where the last ones have not."""
        return self._bitmap(self.keys.ended, range(shards))

    def troubled(self, shards: int) -> array[int]:
        """For each shard, how many of its samples were skipped or failed; shorter where the last ones have none."""
        return unpack(self._bytes(self.keys.troubled, 0, 4 * shards - 1))

    def queued_shards(self, shards: int) -> list[int]:
        """Those of the run's `shards` that have a message on its way."""
        return self._set_bits(self.keys.sent, range(shards))

    def _set_bits(self, key: str, indices: range) -> list[int]:
        base = indices.start // 8 * 8
        found = (base + position for position in positions_of(self._bitmap(key, indices)))
        return [index for index in found if index in indices]

    def _bitmap(self, key: str, indices: range) -> bytes:
        return self._bytes(key, indices.start // 8, (indices.stop - 1) // 8)

    def _bytes(self, key: str, first: int, last: int) -> bytes:
        with self.reading():
            # A bitmap is no text, so it is read past the client's decoding.
            execute = cast(Callable[..., bytes], self.client.execute_command)
            found = execute("GETRANGE", key, first, last, NEVER_DECODE=True)
        return bytes(found)

    def given_up(self, indices: Iterable[int] | None = None) -> dict[int, GivenUp]:
        """Skipped and failed samples, all or those of `indices`."""
        with self.reading():
            if indices is None:
                table = cast(dict[str, str], self.client.hgetall(self.keys.given_up))
            else:
                names = [str(index) for index in indices]
                values = cast(list[str | None], self.client.hmget(self.keys.given_up, names)) if names else []
                table = {name: value for name, value in zip(names, values, strict=True) if value is not None}
            return {int(name): given_up_from_json(int(name), value) for name, value in table.items()}

    def suspects(self, indices: Iterable[int]) -> dict[int, int]:
        """Samples of `indices` that were in flight when an engine went down, and how often."""
        names = [str(index) for index in indices]
        with self.reading():
            values = cast(list[str | None], self.client.hmget(self.keys.suspects, names)) if names else []
            return {int(name): int(value) for name, value in zip(names, values, strict=True) if value is not None}

    def holders(self) -> dict[int, str]:
        """Shard -> owner of its lease, expired ones included."""
        with self.reading():
            found = cast(dict[str, str], self.client.hgetall(self.keys.holders))
            return {int(shard): holder.split(" ", 1)[1] for shard, holder in found.items()}

    def live_holders(self) -> dict[int, str]:
        """Shard -> owner of a lease that has not expired."""
        with self.reading():
            live, held = self._live_leases(), self.holders()
            return {shard: held[shard] for shard in live if shard in held}

    def _live_leases(self) -> list[int]:
        with self.reading():
            live = cast(list[str], self.client.zrangebyscore(self.keys.leases, f"({self._now()}", "+inf"))
            return [int(shard) for shard in live]

    def _now(self) -> int:
        """Milliseconds by Redis' clock."""
        seconds, micros = self.client.time()
        return seconds * 1000 + micros // 1000

    def lease_attempts(self, shards: Sequence[int]) -> dict[int, int]:
        """Leases granted so far for each of `shards` that had one."""
        names = [str(shard) for shard in shards]
        with self.reading():
            values = cast(list[str | None], self.client.hmget(self.keys.attempts, names)) if names else []
            return {s: int(v) for s, v in zip(shards, values, strict=True) if v is not None}

    def work(self, shard: int) -> Work:
        """What former leases of the shard did, as far as this Redis remembers. An account decides nothing, so one
        that cannot be read counts as none.
        """
        with self.reading():
            text = cast(str | None, self.client.hget(self.keys.work, str(shard)))
        try:
            return Work.from_table(json.loads(text)) if text else Work()
        except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
            return Work()

    def newest_fence(self) -> int:
        """The fencing token granted last, or what the epoch's first will exceed. 0 where the run is unknown."""
        with self.reading(), self.client.pipeline(transaction=True) as pipe:
            pipe.hget(self.keys.info, "epoch")
            pipe.get(self.keys.fence)
            epoch, counter = pipe.execute()
        return (int(epoch or 0) << EPOCH_SHIFT) + int(counter or 0)

    def lost_shards(self, shards: int) -> list[int]:
        """Those of the run's `shards` that are open and have neither a live lease nor a message. Whoever sends them
        has to claim them, since they may be leased or sent meanwhile.
        """
        leased = bitmap((shard for shard in self._live_leases() if shard in range(shards)), shards)
        return unset(shards, self.ended_bitmap(shards), self._bitmap(self.keys.sent, range(shards)), leased)

    def overdue_shards(self, grace: float, limit: int = 1000) -> list[int]:
        """Shards queued for longer than `grace` seconds, the oldest first, at most `limit`."""
        with self.reading():
            latest = self._now() - milliseconds(grace)
            found = self.client.zrangebyscore(self.keys.queued, "-inf", latest, start=0, num=limit)
            return [int(shard) for shard in cast(list[str], found)]


def milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
