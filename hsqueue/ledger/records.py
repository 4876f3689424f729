"""What the ledger tells of a run, and how Redis keeps an ending."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from hsqueue.contracts.fingerprint import RunInfo
from hsqueue.contracts.sample import Ending, GivenUp

EPOCH_SHIFT = 32
"""A fencing token is ``epoch << EPOCH_SHIFT | counter``; acquire.lua counts with the same number."""


def worker_of(owner: str) -> str:
    """The name of the worker whose leases are `owner`'s."""
    return owner.split(":", 1)[0]


@dataclass(frozen=True, slots=True)
class Lease:
    """fence: the fencing token, ``epoch << 32 | counter``. attempt: leases of this shard so far, from 1."""

    run: str
    shard: int
    owner: str
    fence: int
    attempt: int

    @property
    def holder(self) -> str:
        return f"{self.fence} {self.owner}"

    @property
    def worker(self) -> str:
        """Name of the worker that holds it; the rest of the owner is a directory."""
        return worker_of(self.owner)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no lease was granted. why: ``ended``, ``held`` or ``unknown``. holder: who has it."""

    why: str
    holder: str = ""


@dataclass(frozen=True, slots=True)
class Counts:
    """pending is derived, so the sum holds at every moment: total = done + skipped + failed + pending.
    tokens: of the done samples.
    """

    total: int
    done: int
    skipped: int
    failed: int
    tokens: int

    @classmethod
    def from_fields(cls, total: int, found: Mapping[str, str]) -> Counts:
        return cls(total, *(int(found.get(name, 0)) for name in ("done", "skipped", "failed", "tokens")))

    @property
    def pending(self) -> int:
        return self.total - self.done - self.skipped - self.failed


@dataclass(frozen=True, slots=True)
class LedgerInfo:
    """What the ledger knows of a run. dir: where the run lies. queue: of its messages. tokens: planned.
    bytes_per_token: on the volume. model: as planned for.
    """

    run: str
    dir: str
    samples: int
    shards: int
    shard_size: int
    queue: str
    epoch: int
    tokens: int
    bytes_per_token: int
    model: str

    @classmethod
    def of(cls, info: RunInfo, directory: str, epoch: int) -> LedgerInfo:
        """Of a run that lies in `directory`."""
        target = info.fingerprint.target
        return cls(
            info.run, directory, info.samples, info.shards, info.fingerprint.shard_size, target.queue, epoch,
            info.tokens, target.bytes_per_token, target.model,
        )  # fmt: skip

    @classmethod
    def from_fields(cls, run: str, found: Mapping[str, str]) -> LedgerInfo:
        """Raises ValueError or KeyError for what ``Ledger.create`` does not write."""
        # A name with NUL is no path, and a relative one would mean another place in every process.
        if not found["dir"].startswith("/") or "\0" in found["dir"]:
            raise ValueError(f"{found['dir']!r:.60} is no directory's full name")
        numbers = (
            int(found[name]) for name in ("samples", "shards", "shard_size", "epoch", "tokens", "bytes_per_token")
        )
        samples, shards, shard_size, epoch, tokens, bytes_per_token = numbers
        return cls(
            run, found["dir"], samples, shards, shard_size, found["queue"], epoch, tokens, bytes_per_token,
            found["model"],
        )  # fmt: skip

    def to_fields(self) -> dict[str, str | int]:
        return {name: value for name, value in asdict(self).items() if name != "run"}


@dataclass(frozen=True, slots=True)
class Standing:
    """Shards of a run. open: not ended. leased: with a live lease. queued: with a message on its way, none of them
    leased. waited: seconds since the oldest of these messages was sent.
    """

    open: int
    leased: int
    queued: int
    waited: float

    def may_have_lost(self, grace: float | None) -> bool:
        """Whether some open shard may have neither a worker nor a message. grace: as for ``Ledger.claim``."""
        overdue = grace is not None and self.queued > 0 and self.waited >= grace
        return overdue or self.leased + self.queued < self.open


def given_up_json(sample: GivenUp) -> str:
    return json.dumps([sample.ending, sample.attempts, sample.error, sample.detail])


def given_up_from_json(index: int, text: str) -> GivenUp:
    """Raises ValueError or TypeError for what ``given_up_json`` does not write."""
    ending, attempts, error, detail = json.loads(text)
    if type(attempts) is not int or not isinstance(error, str) or not isinstance(detail, str):
        raise ValueError(f"{text[:60]!r} is no ending")
    return GivenUp(index, Ending(ending), attempts, error, detail)
