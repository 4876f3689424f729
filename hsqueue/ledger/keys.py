"""Names of the ledger's keys in Redis.

==================  ======  =====================================================================
``info``            hash    dir, samples, shards, shard_size, queue, epoch, tokens (planned),
                            bytes_per_token, model
``counts``          hash    done, skipped, failed, tokens (of done samples)
``done``            bitmap  a bit for each sample whose file is published
``given_up``        hash    index -> JSON [ending, attempts, error, detail]
``suspects``        hash    index -> times in flight when an engine went down
``ended``           bitmap  a bit for each shard whose manifest is written
``leases``          zset    shard -> expiry, ms of Redis' clock
``holders``         hash    shard -> "<fence> <owner>"
``attempts``        hash    shard -> leases granted since it last made progress
``queued``          zset    shard -> ms of Redis' clock when its message was last sent
``sent``            bitmap  a bit for each shard that is in ``queued``
``work``            hash    shard that has not ended -> JSON, see ``hsqueue.contracts.work``
``fence``           string  counter of fencing tokens within the epoch
``pace``            hash    tokens committed over time; see pace.lua
``troubled``        string  for each shard, how many of its samples were given up: 32 bits, big-endian
``newest_failed``   zset    index of a failed sample -> ms of Redis' clock, 0 where unknown; the newest
``newest_skipped``  zset    the same for skipped samples
``meters``          hash    counters; see hsqueue.contracts.meters
==================  ======  =====================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

RUNS = "hsq:runs"
"""Hash of all runs that this Redis knows: run id -> directory."""

WORKERS = "hsq:workers"
"""Hash of worker name -> JSON of its last heartbeat."""

SIGNS = "hsq:workers:signs"
"""Sorted set of worker name -> ms of Redis' clock at its last heartbeat."""

REAPER = "hsq:reaper"
"""String with expiry: who reaps at the moment."""


def worker_meters(worker: str) -> str:
    """Hash of a worker's counters over all runs; see hsqueue.contracts.meters."""
    return f"hsq:meters:{worker}"


@dataclass(frozen=True, slots=True)
class RunKeys:
    """Keys of one run; all share one hash tag, so that a cluster keeps them together."""

    run: str

    def _key(self, name: str) -> str:
        return f"hsq:{{{self.run}}}:{name}"

    @property
    def info(self) -> str:
        return self._key("info")

    @property
    def counts(self) -> str:
        return self._key("counts")

    @property
    def done(self) -> str:
        return self._key("done")

    @property
    def given_up(self) -> str:
        return self._key("given_up")

    @property
    def suspects(self) -> str:
        return self._key("suspects")

    @property
    def ended(self) -> str:
        return self._key("ended")

    @property
    def leases(self) -> str:
        return self._key("leases")

    @property
    def holders(self) -> str:
        return self._key("holders")

    @property
    def attempts(self) -> str:
        return self._key("attempts")

    @property
    def queued(self) -> str:
        return self._key("queued")

    @property
    def sent(self) -> str:
        return self._key("sent")

    @property
    def work(self) -> str:
        return self._key("work")

    @property
    def fence(self) -> str:
        return self._key("fence")

    @property
    def pace(self) -> str:
        return self._key("pace")

    @property
    def troubled(self) -> str:
        return self._key("troubled")

    @property
    def newest_failed(self) -> str:
        return self._key("newest_failed")

    @property
    def newest_skipped(self) -> str:
        return self._key("newest_skipped")

    @property
    def meters(self) -> str:
        return self._key("meters")

    @property
    def rebuilding(self) -> str:
        return self._key("rebuilding")

    @property
    def all(self) -> tuple[str, ...]:
        return (
            self.info, self.counts, self.done, self.given_up, self.suspects, self.ended, self.leases,
            self.holders, self.attempts, self.queued, self.sent, self.work, self.fence, self.pace, self.troubled,
            self.newest_failed, self.newest_skipped, self.meters,
        )  # fmt: skip
