"""What is wrong at the moment, in plain words: one pure function of what the ledger and the workers say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hsqueue.contracts.sample import Ending
from hsqueue.monitoring.failures import Failure
from hsqueue.monitoring.limits import (
    DUMPS_FREE,
    QUIET,
    RECENT_FAILURES,
    STALLED,
    engine_is_stalled,
    volume_is_slow,
)
from hsqueue.monitoring.pace import Pace
from hsqueue.monitoring.workers import GONE, PAUSED, WorkerState

KINDS = (
    "no_worker", "volume_unusable", "engine_down", "worker_gone", "engine_stalled", "volume_slow", "dumps_full",
    "samples_failing", "run_stalled",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Trouble:
    """kind: one of KINDS. worker: whose it is, empty where it is the run's. text: one sentence for people."""

    kind: str
    worker: str
    text: str


def troubles(
    pending: int, workers: Sequence[WorkerState], pace: Pace, failures: Sequence[Failure], now: float
) -> tuple[Trouble, ...]:
    """Of a run, the worst first; none where nothing is pending. workers: that serve its queue.

    failures: the newest. now: Unix time by Redis' clock.
    """
    if not pending:
        return ()
    found = [trouble for worker in workers for trouble in _of_worker(worker)]
    found += _of_run(workers, pace, failures, now)
    return tuple(sorted(found, key=lambda trouble: KINDS.index(trouble.kind)))


def _of_worker(w: WorkerState) -> Iterator[Trouble]:
    if w.state == GONE:
        yield Trouble(
            "worker_gone", w.name,
            f"worker {w.name} is gone: not heard of for {w.seen:.0f} s; others take over what it had",
        )  # fmt: skip
        return
    if w.state == PAUSED and w.waits_for == "volume":
        yield Trouble("volume_unusable", w.name, f"worker {w.name} waits for the volume: {w.paused}")
    elif w.state == PAUSED:
        yield Trouble("engine_down", w.name, f"worker {w.name} waits for its engine at {w.engine}: {w.paused}")
    if engine_is_stalled(w.engine_quiet, w.answer_seconds):
        yield Trouble(
            "engine_stalled", w.name,
            f"the engine at {w.engine} stands still: no answer for {w.engine_quiet:.0f} s, {w.requests} requests wait "
            f"(worker {w.name})",
        )  # fmt: skip
    if w.volume_quiet >= QUIET:
        yield Trouble(
            "volume_slow", w.name,
            f"the volume stands still: nothing could be written for {w.volume_quiet:.0f} s (worker {w.name})",
        )  # fmt: skip
    elif w.shards and volume_is_slow(w.publish_seconds, w.answer_seconds):
        yield Trouble(
            "volume_slow", w.name,
            f"the volume is slow: a sample takes {w.publish_seconds:.1f} s to get there, the engine's answer "
            f"{w.answer_seconds:.1f} s (worker {w.name})",
        )  # fmt: skip
    if w.dump_total and w.dump_free < DUMPS_FREE * w.dump_total:
        yield Trouble(
            "dumps_full", w.name,
            f"the dump directory of worker {w.name} is nearly full: {100 * w.dump_free / w.dump_total:.0f}% is free",
        )  # fmt: skip


def _of_run(workers: Sequence[WorkerState], pace: Pace, failures: Sequence[Failure], now: float) -> Iterator[Trouble]:
    if not any(w.lives for w in workers):
        yield Trouble("no_worker", "", "no worker serves this run; start one with hsqueue worker")
    recent = [f for f in failures if f.sample.ending is Ending.FAILED and now - f.time <= RECENT_FAILURES]
    if recent:
        newest = max(recent, key=lambda f: f.time).sample
        what = "1 sample" if len(recent) == 1 else f"{len(recent)} samples"
        yield Trouble(
            "samples_failing", "",
            f"{what} failed within the last five minutes, the newest: sample {newest.index}, {newest.error}",
        )  # fmt: skip
    if pace.idle >= STALLED and any(w.shards for w in workers):
        yield Trouble("run_stalled", "", f"no sample has ended for {pace.idle:.0f} s, though workers are at it")
