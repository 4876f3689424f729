"""One run's ledger. Every change is one Lua script or one transaction, so that it happens wholly or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import redis

from hsqueue.contracts.errors import LeaseLost
from hsqueue.contracts.sample import GivenUp, Published
from hsqueue.contracts.work import Work
from hsqueue.ledger.initial import initial
from hsqueue.ledger.keys import RUNS, worker_meters
from hsqueue.ledger.lua import register
from hsqueue.ledger.reader import LedgerReader, milliseconds
from hsqueue.ledger.records import Lease, LedgerInfo, Refusal, Standing, given_up_json

METERS_TTL = 24 * 3600.0
"""Seconds that a worker's counters stay after it last added to them."""


class Ledger(LedgerReader):
    """The ledger of one run, to read and to change. Errors: see LedgerReader."""

    def __init__(self, client: redis.Redis, url: str, run: str) -> None:
        super().__init__(client, url, run)
        self._scripts = register(client)

    def _call(self, name: str, keys: Sequence[str], args: Iterable[str | int | float]) -> Any:
        with self.reading():
            return self._scripts[name](keys=list(keys), args=list(args))

    # --- leases ------------------------------------------------------------------------------------------

    def acquire(self, shard: int, owner: str, ttl: float) -> Lease | Refusal:
        """ttl: seconds that the lease lives without renewal."""
        k = self.keys
        reply = self._call(
            "acquire",
            (k.info, k.ended, k.leases, k.holders, k.attempts, k.fence, k.queued, k.pace, k.sent),
            (shard, owner, milliseconds(ttl)),
        )
        if reply[0] == "granted":
            return Lease(self.run, shard, owner, int(reply[1]), int(reply[2]))
        return Refusal(*reply)

    def renew(self, lease: Lease, ttl: float) -> bool:
        """False where the lease is lost."""
        keys = (self.keys.leases, self.keys.holders)
        return bool(self._call("renew", keys, (lease.shard, lease.holder, milliseconds(ttl))))

    def release(self, lease: Lease) -> None:
        self._call("release", (self.keys.leases, self.keys.holders), (lease.shard, lease.holder))

    def reclaim(self, owner: str) -> list[int]:
        """Drops every lease of `owner`, which the caller knows to be dead, and returns their shards."""
        return [int(s) for s in self._call("reclaim", (self.keys.leases, self.keys.holders), (owner,))]

    # --- endings -----------------------------------------------------------------------------------------

    def commit(self, lease: Lease, done: Sequence[Published], given_up: Sequence[GivenUp] = ()) -> int:
        """Records endings under `lease`; those recorded before count for nothing. Returns the new ones.

        Raises LeaseLost, and then records nothing.
        """
        k = self.keys
        # One argument for all: a call of many costs its client several times as much.
        counted = json.dumps([number for sample in done for number in (sample.index, sample.tokens)])
        args: list[str | int] = [lease.shard, lease.holder, counted]
        for given in given_up:
            args += [given.index, str(given.ending), given_up_json(given)]
        keys = (
            k.holders, k.done, k.counts, k.given_up, k.suspects, k.attempts, k.pace, k.troubled, k.newest_failed,
            k.newest_skipped,
        )  # fmt: skip
        recorded = int(self._call("commit", keys, args))
        if recorded < 0:
            raise LeaseLost(f"the lease of shard {lease.shard} is lost", do="Nothing; another worker has it.")
        return recorded

    def add(self, worker: str, increments: Mapping[str, int]) -> None:
        """Adds to the counters of the run and of `worker`; names as in ``hsqueue.contracts.meters``."""
        args: list[str | int] = [milliseconds(METERS_TTL)]
        for name, increment in increments.items():
            args += [name, increment]
        self._call("meter", (self.keys.info, self.keys.meters, worker_meters(worker)), args)

    def suspect(self, indices: Iterable[int]) -> None:
        """Notes samples that were in flight when their engine went down."""
        with self.reading(), self.client.pipeline() as pipe:
            for index in indices:
                pipe.hincrby(self.keys.suspects, str(index), 1)
            pipe.execute()

    def keep_work(self, shard: int, work: Work) -> None:
        """For the shard's next lease, should this one not be the last."""
        with self.reading():
            self.client.hset(self.keys.work, str(shard), json.dumps(work.to_table()))

    def finish(self, lease: Lease) -> bool:
        """Marks the shard as ended. False where the lease is lost."""
        k = self.keys
        keys = (k.leases, k.holders, k.ended, k.queued, k.attempts, k.work, k.sent)
        return bool(self._call("finish", keys, (lease.shard, lease.holder)))

    def forget(self, shard: int, tokens: Mapping[int, int]) -> int:
        """Makes samples pending again. tokens: index -> tokens. Returns how many had ended."""
        k = self.keys
        args: list[int] = [shard]
        for index, count in tokens.items():
            args += [index, count]
        keys = (
            k.done, k.counts, k.given_up, k.suspects, k.ended, k.attempts, k.queued, k.troubled, k.newest_failed,
            k.newest_skipped, k.sent,
        )  # fmt: skip
        return int(self._call("forget", keys, args))

    def reopen(self, shard: int) -> None:
        """Lets an ended shard be leased again, because its manifest went."""
        with self.reading(), self.client.pipeline(transaction=True) as pipe:
            pipe.setbit(self.keys.ended, shard, 0)
            pipe.zrem(self.keys.queued, str(shard))
            pipe.setbit(self.keys.sent, shard, 0)
            pipe.execute()

    # --- the queue's memory ------------------------------------------------------------------------------

    def standing(self, shards: int) -> Standing:
        """How the run's `shards` stand; costs the same however many there are."""
        k = self.keys
        found = [int(number) for number in self._call("standing", (k.ended, k.leases, k.queued), (shards,))]
        return Standing(found[0], found[1], found[2], found[3] / 1000)

    def claim(self, shards: Sequence[int], grace: float | None) -> list[int]:
        """Those of `shards` whose messages the caller must send now.

        grace: seconds after which a shard that is still queued is sent again; None: never.
        """
        k = self.keys
        age = -1 if grace is None else milliseconds(grace)
        claimed: list[int] = []
        for begin in range(0, len(shards), 1000):
            part = shards[begin : begin + 1000]
            reply = self._call("claim", (k.info, k.ended, k.leases, k.queued, k.sent), (age, *part))
            claimed += [int(shard) for shard in reply]
        return claimed

    def unqueue(self, shards: Iterable[int]) -> None:
        """Takes a claim back, where the message could not be sent."""
        with self.reading(), self.client.pipeline(transaction=True) as pipe:
            for shard in shards:
                pipe.zrem(self.keys.queued, str(shard))
                pipe.setbit(self.keys.sent, shard, 0)
            pipe.execute()

    # --- a whole run -------------------------------------------------------------------------------------

    def create(
        self, info: LedgerInfo, done: Iterable[Published], given_up: Iterable[GivenUp], ended: Iterable[int]
    ) -> None:
        """Replaces whatever this Redis holds of the run. One transaction; `info` makes it visible."""
        k, made = self.keys, initial(info, done, given_up, ended)
        with self.reading(), self.client.pipeline(transaction=True) as pipe:
            pipe.delete(*k.all)
            pipe.set(k.done, made.done)
            pipe.set(k.ended, made.ended)
            pipe.hset(k.counts, mapping=cast(Any, made.counts))
            if made.given_up:
                pipe.hset(k.given_up, mapping=cast(Any, made.given_up))
                pipe.set(k.troubled, made.troubled)
            for key, indices in ((k.newest_failed, made.newest_failed), (k.newest_skipped, made.newest_skipped)):
                if indices:
                    pipe.zadd(key, {str(index): 0 for index in indices})
            pipe.hset(k.info, mapping=cast(Any, info.to_fields()))
            pipe.hset(RUNS, self.run, info.dir)
            pipe.execute()

    def move(self, directory: str) -> None:
        """The run lies elsewhere now."""
        with self.reading(), self.client.pipeline(transaction=True) as pipe:
            pipe.hset(self.keys.info, "dir", directory)
            pipe.hset(RUNS, self.run, directory)
            pipe.execute()

    def drop(self) -> None:
        """Removes the run from this Redis; the volume keeps everything that matters."""
        with self.reading(), self.client.pipeline(transaction=True) as pipe:
            pipe.delete(*self.keys.all)
            # Remembered with no directory, so that no reaper takes it for lost.
            pipe.hset(RUNS, self.run, "")
            pipe.execute()
