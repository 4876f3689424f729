"""How a run stands at one moment."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import Any, cast

from hsqueue.contracts import fields
from hsqueue.contracts.fingerprint import RunInfo
from hsqueue.contracts.sample import Ending
from hsqueue.ledger.connect import redis_errors
from hsqueue.ledger.keys import WORKERS
from hsqueue.ledger.ledger import Ledger
from hsqueue.store.layout import RunLayout
from hsqueue.store.survey import survey

WORKER_SILENCE = 20.0
"""Seconds without a heartbeat after which a worker counts as gone."""


@dataclass(frozen=True, slots=True)
class WorkerState:
    """seen: seconds since its last heartbeat. shards: that it holds a lease of. paused: why, or empty."""

    name: str
    engine: str
    seen: float
    shards: tuple[int, ...]
    paused: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """total = done + skipped + failed + pending. tokens, bytes: of the done samples' rows.
    shards_ended: with a manifest. source: ``ledger``, or ``volume`` where no Redis runs for this run.
    """

    run: str
    total: int
    done: int
    skipped: int
    failed: int
    pending: int
    tokens: int
    bytes: int
    shards: int
    shards_ended: int
    source: str
    workers: tuple[WorkerState, ...]

    @property
    def complete(self) -> bool:
        """Every sample has an ending, and none of them is a failure."""
        return self.pending == 0 and self.failed == 0

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def from_ledger(ledger: Ledger, info: RunInfo) -> Snapshot:
    """Raises RedisUnreachable."""
    counts = ledger.counts(info.samples)
    return Snapshot(
        info.run, counts.total, counts.done, counts.skipped, counts.failed, counts.pending, counts.tokens,
        counts.tokens * info.fingerprint.target.bytes_per_token, info.shards,
        len(ledger.ended_shards(info.shards)), "ledger", worker_states(ledger, info),
    )  # fmt: skip


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
    return Snapshot(
        info.run, info.samples, done, skipped, failed, info.samples - done - skipped - failed, tokens,
        tokens * info.fingerprint.target.bytes_per_token, info.shards, ended, "volume", (),
    )  # fmt: skip


def worker_states(ledger: Ledger, info: RunInfo) -> tuple[WorkerState, ...]:
    """Workers that serve this run's queue and were heard of lately, or hold one of its leases."""
    with redis_errors(ledger.url):
        beats = cast(dict[str, str], ledger.client.hgetall(WORKERS))
    held: dict[str, list[int]] = {}
    for shard, owner in ledger.live_holders().items():
        held.setdefault(owner.split(":", 1)[0], []).append(shard)
    states = []
    for name, text in sorted(beats.items()):
        shards = tuple(sorted(held.get(name, ())))
        state = _worker_state(name, text, shards, info.fingerprint.target.queue)
        if state is not None and (state.seen < WORKER_SILENCE or shards):
            states.append(state)
    return tuple(states)


def _worker_state(name: str, text: str, shards: tuple[int, ...], queue: str) -> WorkerState | None:
    """From a heartbeat; None for another queue's, and for one that is none: it must not hide the others."""
    try:
        beat: dict[str, Any] = json.loads(text)
        engine, paused, seen = str(beat["engine"]), str(beat["paused"]), time.time() - fields.seconds(beat, "time")
        return WorkerState(name, engine, round(seen, 1), shards, paused) if beat["queue"] == queue else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
