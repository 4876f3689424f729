"""How runs stand at one moment: the one source of ``status``, Flower, Prometheus and the report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import redis

from hsqueue.contracts.fingerprint import RunInfo
from hsqueue.contracts.sample import Ending
from hsqueue.ledger.connect import redis_errors
from hsqueue.ledger.keys import RUNS, RunKeys
from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.records import Counts, LedgerInfo, worker_of
from hsqueue.ledger.signs import ask_for_signs, read_signs
from hsqueue.monitoring.failures import newest_failures
from hsqueue.monitoring.pace import NO_PACE, Pace, pace_of, tokens_left
from hsqueue.monitoring.troubles import Trouble, troubles
from hsqueue.monitoring.workers import WorkerState, worker_states
from hsqueue.store.layout import RunLayout
from hsqueue.store.survey import survey

ASKED = 4
"""Commands of ``_ask``."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """total = done + skipped + failed + pending. tokens, bytes: of the done samples' rows. planned: tokens of all.
    shards_ended: with a manifest. dir: where the run lies. queue: of its messages.
    """

    run: str
    dir: str
    model: str
    queue: str
    total: int
    done: int
    skipped: int
    failed: int
    pending: int
    tokens: int
    planned: int
    bytes: int
    shards: int
    shards_ended: int
    pace: Pace

    @property
    def complete(self) -> bool:
        """Every sample has an ending, and none of them is a failure."""
        return self.pending == 0 and self.failed == 0

    @property
    def ended(self) -> bool:
        """Nothing is left to do."""
        return self.pending == 0 and self.shards_ended == self.shards

    def to_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class Snapshot(RunSummary):
    """source: ``ledger``, or ``volume`` where no Redis runs for this run. workers: that serve the run's queue."""

    source: str
    workers: tuple[WorkerState, ...]
    troubles: tuple[Trouble, ...]


def overview(client: redis.Redis, url: str) -> tuple[RunSummary, ...]:
    """Every run that this Redis knows, by its id, however many, in two exchanges. One whose keys hold something else
    is passed over. url: named in errors. Raises RedisUnreachable.
    """
    with redis_errors(url):
        runs = sorted(run for run, directory in cast(dict[str, str], client.hgetall(RUNS)).items() if directory)
        with client.pipeline(transaction=False) as pipe:
            pipe.time()
            for run in runs:
                _ask(pipe, RunKeys(run))
            clock, *replies = pipe.execute(raise_on_error=False)
    found = []
    for position, run in enumerate(runs):
        part = replies[position * ASKED : (position + 1) * ASKED]
        try:
            found.append(RunSummary(**_figures_of(LedgerInfo.from_fields(run, part[0]), part, _unix(clock))))
        except (KeyError, ValueError, TypeError, AttributeError, ArithmeticError):
            continue
    return tuple(found)


def every_worker(client: redis.Redis, url: str) -> tuple[WorkerState, ...]:
    """All workers of all queues; their shards are not looked up. Raises RedisUnreachable."""
    with redis_errors(url), client.pipeline(transaction=False) as pipe:
        ask_for_signs(pipe)
        return worker_states(read_signs(pipe.execute()), {})


def by_redis(ledger: Ledger) -> Snapshot | None:
    """How a run stands, by Redis alone; None where it does not know the run. Raises RedisUnreachable, LedgerDamaged."""
    info = ledger.info()
    return None if info is None else _snapshot(ledger, info)


def from_ledger(ledger: Ledger, info: RunInfo) -> Snapshot:
    """Of a run that Redis may have lost: then nothing is done. Raises RedisUnreachable, LedgerDamaged."""
    return _snapshot(ledger, ledger.info() or LedgerInfo.of(info, "", 0))


def from_volume(layout: RunLayout, info: RunInfo) -> Snapshot:
    """The slow way, by the files themselves. Raises VolumeUnusable."""
    done = skipped = failed = tokens = ended = 0
    for state in survey(layout, info):
        done += len(state.done)
        tokens += sum(d.tokens for d in state.done)
        ended += state.ended
        if state.ended:
            skipped += sum(g.ending is Ending.SKIPPED for g in state.given_up)
            failed += sum(g.ending is Ending.FAILED for g in state.given_up)
    known = LedgerInfo.of(info, str(layout.root), 0)
    counts = Counts(info.samples, done, skipped, failed, tokens)
    return Snapshot(**_figures(known, counts, ended, NO_PACE), source="volume", workers=(), troubles=())


def worker_states_of(ledger: Ledger, queue: str) -> tuple[WorkerState, ...]:
    """Workers that serve `queue`, with the shards of the ledger's run that they hold."""
    with ledger.reading():
        with ledger.client.pipeline(transaction=False) as pipe:
            ask_for_signs(pipe)
            signs = read_signs(pipe.execute())
        held: dict[str, tuple[int, ...]] = {}
        for shard, owner in sorted(ledger.live_holders().items()):
            held[worker_of(owner)] = (*held.get(worker_of(owner), ()), shard)
    return tuple(worker for worker in worker_states(signs, held) if worker.queue == queue)


def _snapshot(ledger: Ledger, info: LedgerInfo) -> Snapshot:
    with ledger.reading():
        with ledger.client.pipeline(transaction=False) as pipe:
            pipe.time()
            _ask(pipe, ledger.keys)
            clock, *replies = pipe.execute()
        figures = _figures_of(info, replies, _unix(clock))
    workers = worker_states_of(ledger, info.queue)
    failures = newest_failures(ledger, info.shard_size) if figures["failed"] else []
    found = troubles(figures["pending"], workers, figures["pace"], failures, _unix(clock))
    return Snapshot(**figures, source="ledger", workers=workers, troubles=found)


def _ask(pipe: Any, keys: RunKeys) -> None:
    """Adds ASKED commands to a pipeline; their replies are for ``_figures_of``."""
    pipe.hgetall(keys.info)
    pipe.hgetall(keys.counts)
    pipe.hgetall(keys.pace)
    pipe.bitcount(keys.ended)


def _figures_of(info: LedgerInfo, replies: Sequence[Any], now: float) -> dict[str, Any]:
    _, fields, marks, ended = replies
    counts = Counts.from_fields(info.samples, fields)
    left = tokens_left(info.tokens, counts.tokens, counts.pending, counts.skipped + counts.failed)
    return _figures(info, counts, int(ended), pace_of(marks, now, left, counts.pending > 0))


def _figures(info: LedgerInfo, counts: Counts, ended: int, pace: Pace) -> dict[str, Any]:
    return {
        "run": info.run, "dir": info.dir, "model": info.model, "queue": info.queue, "total": counts.total,
        "done": counts.done, "skipped": counts.skipped, "failed": counts.failed, "pending": counts.pending,
        "tokens": counts.tokens, "planned": info.tokens, "bytes": counts.tokens * info.bytes_per_token,
        "shards": info.shards, "shards_ended": ended, "pace": pace,
    }  # fmt: skip


def _unix(clock: tuple[int, int]) -> float:
    """Redis' TIME in seconds."""
    return clock[0] + clock[1] / 1e6
