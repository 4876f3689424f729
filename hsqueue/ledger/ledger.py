"""One run's ledger. Every change is one Lua script, so that it happens wholly or not at all."""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any, cast

import redis

from hsqueue.contracts.errors import LeaseLost, LedgerDamaged, RedisUnreachable
from hsqueue.contracts.fingerprint import RunInfo
from hsqueue.contracts.sample import Ending, GivenUp, Published
from hsqueue.contracts.work import Work
from hsqueue.ledger.bits import bitmap, positions_of, unset
from hsqueue.ledger.connect import redis_errors
from hsqueue.ledger.keys import RUNS, RunKeys, worker_meters

EPOCH_SHIFT = 32
"""A fencing token is ``epoch << EPOCH_SHIFT | counter``; acquire.lua counts with the same number."""

SCRIPTS = (
    "acquire",
    "renew",
    "release",
    "commit",
    "finish",
    "claim",
    "forget",
    "reclaim",
    "standing",
    "meter",
)
PACE, PACED = "pace", ("acquire", "commit")
"""A part of a script, and the scripts that it stands before."""

NEWEST = 100
"""Of the failed and of the skipped samples, how many newest are listed; commit.lua has the same number."""

METERS_TTL = 24 * 3600.0
"""Seconds that a worker's counters stay after it last added to them."""


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


class Ledger:
    """The ledger of `run` in the Redis behind `client`. url: named, masked, in errors.

    Every method raises RedisUnreachable where Redis does not answer; those that read, LedgerDamaged as well.
    """

    def __init__(self, client: redis.Redis, url: str, run: str) -> None:
        self.client, self.url, self.run, self.keys = client, url, run, RunKeys(run)
        folder = files("hsqueue.ledger") / "scripts"
        texts = {name: (folder / f"{name}.lua").read_text() for name in (*SCRIPTS, PACE)}
        self._scripts = {
            name: client.register_script(texts[PACE] + texts[name] if name in PACED else texts[name])
            for name in SCRIPTS
        }

    def _call(self, name: str, keys: Sequence[str], args: Iterable[str | int | float]) -> Any:
        with self.reading():
            return self._scripts[name](keys=list(keys), args=list(args))

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

    # --- reading -----------------------------------------------------------------------------------------

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
        found = array("I")
        data = self._bytes(self.keys.troubled, 0, 4 * shards - 1)
        found.frombytes(data[: len(data) // 4 * 4])
        if sys.byteorder == "little":
            found.byteswap()
        return found

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
            return {int(name): _given_up(int(name), value) for name, value in table.items()}

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

    # --- leases ------------------------------------------------------------------------------------------

    def acquire(self, shard: int, owner: str, ttl: float) -> Lease | Refusal:
        """ttl: seconds that the lease lives without renewal."""
        k = self.keys
        reply = self._call(
            "acquire",
            (k.info, k.ended, k.leases, k.holders, k.attempts, k.fence, k.queued, k.pace, k.sent),
            (shard, owner, _milliseconds(ttl)),
        )
        if reply[0] == "granted":
            return Lease(self.run, shard, owner, int(reply[1]), int(reply[2]))
        return Refusal(*reply)

    def renew(self, lease: Lease, ttl: float) -> bool:
        """False where the lease is lost."""
        keys = (self.keys.leases, self.keys.holders)
        return bool(self._call("renew", keys, (lease.shard, lease.holder, _milliseconds(ttl))))

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
        args: list[str | int] = [lease.shard, lease.holder, len(done)]
        for sample in done:
            args += [sample.index, sample.tokens]
        for given in given_up:
            args += [given.index, str(given.ending), _given_up_json(given)]
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
        args: list[str | int] = [_milliseconds(METERS_TTL)]
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

    def standing(self, shards: int) -> Standing:
        """How the run's `shards` stand; costs the same however many there are."""
        k = self.keys
        found = [int(number) for number in self._call("standing", (k.ended, k.leases, k.queued), (shards,))]
        return Standing(found[0], found[1], found[2], found[3] / 1000)

    # --- the queue's memory ------------------------------------------------------------------------------

    def claim(self, shards: Sequence[int], grace: float | None) -> list[int]:
        """Those of `shards` whose messages the caller must send now.

        grace: seconds after which a shard that is still queued is sent again; None: never.
        """
        k = self.keys
        milliseconds = -1 if grace is None else _milliseconds(grace)
        claimed: list[int] = []
        for begin in range(0, len(shards), 1000):
            part = shards[begin : begin + 1000]
            reply = self._call("claim", (k.info, k.ended, k.leases, k.queued, k.sent), (milliseconds, *part))
            claimed += [int(shard) for shard in reply]
        return claimed

    def unqueue(self, shards: Iterable[int]) -> None:
        """Takes a claim back, where the message could not be sent."""
        with self.reading(), self.client.pipeline(transaction=True) as pipe:
            for shard in shards:
                pipe.zrem(self.keys.queued, str(shard))
                pipe.setbit(self.keys.sent, shard, 0)
            pipe.execute()

    def lost_shards(self, shards: int) -> list[int]:
        """Those of the run's `shards` that are open and have neither a live lease nor a message. Whoever sends them
        has to claim them, since they may be leased or sent meanwhile.
        """
        leased = bitmap((shard for shard in self._live_leases() if shard in range(shards)), shards)
        return unset(shards, self.ended_bitmap(shards), self._bitmap(self.keys.sent, range(shards)), leased)

    def overdue_shards(self, grace: float, limit: int = 1000) -> list[int]:
        """Shards queued for longer than `grace` seconds, the oldest first, at most `limit`."""
        with self.reading():
            latest = self._now() - _milliseconds(grace)
            found = self.client.zrangebyscore(self.keys.queued, "-inf", latest, start=0, num=limit)
            return [int(shard) for shard in cast(list[str], found)]

    # --- a whole run -------------------------------------------------------------------------------------

    def create(
        self, info: LedgerInfo, done: Iterable[Published], given_up: Iterable[GivenUp], ended: Iterable[int]
    ) -> None:
        """Replaces whatever this Redis holds of the run. One transaction; `info` makes it visible."""
        k = self.keys
        counts: dict[str, int] = dict.fromkeys(("done", "skipped", "failed", "tokens"), 0)
        bits = bytearray((info.samples + 7) // 8)
        for sample in done:
            bits[sample.index // 8] |= 0x80 >> sample.index % 8
            counts["done"] += 1
            counts["tokens"] += sample.tokens
        table = {}
        troubled = array("I", bytes(4 * info.shards))
        newest: dict[str, list[int]] = {k.newest_skipped: [], k.newest_failed: []}
        for given in given_up:
            table[str(given.index)] = _given_up_json(given)
            counts[str(given.ending)] += 1
            troubled[given.index // info.shard_size] += 1
            newest[k.newest_failed if given.ending is Ending.FAILED else k.newest_skipped].append(given.index)
        if sys.byteorder == "little":
            troubled.byteswap()
        with self.reading(), self.client.pipeline(transaction=True) as pipe:
            pipe.delete(*k.all)
            pipe.set(k.done, bytes(bits))
            pipe.set(k.ended, bitmap(ended, info.shards))
            pipe.hset(k.counts, mapping=cast(Any, counts))
            if table:
                pipe.hset(k.given_up, mapping=cast(Any, table))
                pipe.set(k.troubled, troubled.tobytes())
            for key, indices in newest.items():
                if indices:
                    pipe.zadd(key, {str(index): 0 for index in sorted(indices)[-NEWEST:]})
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


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _given_up_json(sample: GivenUp) -> str:
    return json.dumps([sample.ending, sample.attempts, sample.error, sample.detail])


def _given_up(index: int, text: str) -> GivenUp:
    ending, attempts, error, detail = json.loads(text)
    if type(attempts) is not int or not isinstance(error, str) or not isinstance(detail, str):
        raise ValueError(f"{text[:60]!r} is no ending")
    return GivenUp(index, Ending(ending), attempts, error, detail)
