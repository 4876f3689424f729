"""Names of the ledger's keys in Redis.

==================  ======  =====================================================================
``info``            hash    dir, samples, shards, shard_size, queue, epoch, created
``counts``          hash    done, skipped, failed, tokens (of done samples)
``done``            bitmap  a bit for each sample whose file is published
``given_up``        hash    index -> JSON [ending, attempts, error, detail]
``suspects``        hash    index -> times in flight when an engine went down
``ended``           bitmap  a bit for each shard whose manifest is written
``leases``          zset    shard -> expiry, ms of Redis' clock
``holders``         hash    shard -> "<fence> <owner>"
``attempts``        hash    shard -> leases granted since it last made progress
``queued``          zset    shard -> ms of Redis' clock when its message was last sent
``fence``           string  counter of fencing tokens within the epoch
==================  ======  =====================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

RUNS = "hsq:runs"
"""Hash of all runs that this Redis knows: run id -> directory."""

WORKERS = "hsq:workers"
"""Hash of worker name -> JSON of its last heartbeat."""

REAPER = "hsq:reaper"
"""String with expiry: who reaps at the moment."""


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
    def fence(self) -> str:
        return self._key("fence")

    @property
    def rebuilding(self) -> str:
        return self._key("rebuilding")

    @property
    def all(self) -> tuple[str, ...]:
        return (
            self.info, self.counts, self.done, self.given_up, self.suspects, self.ended, self.leases,
            self.holders, self.attempts, self.queued, self.fence,
        )  # fmt: skip
