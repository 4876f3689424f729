"""What the pages show, as JSON: pure functions of what ``hsqueue.monitoring`` says.

Names and errors come from outside and are clipped here; the pages write them as text, never as HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hsqueue.contracts.sample import GivenUp
from hsqueue.monitoring.failures import Failure
from hsqueue.monitoring.shards import ENDED, QUEUED, TROUBLED, WAITING, WORKED_AT
from hsqueue.monitoring.snapshot import RunSummary, Snapshot
from hsqueue.monitoring.troubles import KINDS
from hsqueue.monitoring.workers import WorkerState

LONGEST_TEXT = 600
LONGEST_NAME = 200
STATES = {
    WAITING: "waiting", QUEUED: "queued", WORKED_AT: "worked at", ENDED: "ended",
    TROUBLED: "ended, with failures or skips",
}  # fmt: skip

Json = dict[str, Any]


def run_json(run: RunSummary) -> Json:
    """recent, overall: tokens a second over five minutes and since the start. left: seconds, None where unknown."""
    return {
        "run": run.run, "dir": _clip(run.dir), "model": _clip(run.model), "total": run.total, "done": run.done,
        "skipped": run.skipped, "failed": run.failed, "pending": run.pending, "tokens": run.tokens,
        "bytes": run.bytes, "shards": run.shards, "shards_ended": run.shards_ended, "recent": run.pace.recent,
        "overall": run.pace.overall, "left": run.pace.seconds_left, "began": run.pace.began,
    }  # fmt: skip


def totals(runs: Sequence[RunSummary]) -> Json:
    """The sums over unfinished runs, or over all where none is. left: of the one that takes longest, as it looks."""
    unfinished = [run for run in runs if run.pending]
    shown = unfinished or runs
    names = ("total", "done", "skipped", "failed", "pending", "tokens", "bytes")
    left = [run.pace.seconds_left for run in unfinished if run.pace.seconds_left is not None]
    return {
        **{name: sum(getattr(run, name) for run in shown) for name in names},
        "runs": len(shown), "unfinished": len(unfinished), "left": max(left, default=None),
        "recent": round(sum(run.pace.recent for run in unfinished), 1),
    }  # fmt: skip


def workers_json(workers: Iterable[WorkerState], runs: Iterable[Snapshot]) -> list[Json]:
    """shards: that a worker holds, of all of `runs`, as [run, shard]."""
    held: dict[str, list[tuple[str, int]]] = {}
    for run in runs:
        for worker in run.workers:
            held.setdefault(worker.name, []).extend((run.run, shard) for shard in worker.shards)
    return [_worker(worker, held.get(worker.name, [])) for worker in workers]


def _worker(worker: WorkerState, shards: list[tuple[str, int]]) -> Json:
    return {
        "name": _clip(worker.name, LONGEST_NAME), "engine": _clip(worker.engine, LONGEST_NAME),
        "gpu": _clip(worker.gpu, LONGEST_NAME), "host": _clip(worker.host, LONGEST_NAME), "seen": worker.seen,
        "state": worker.state, "paused": _clip(worker.paused), "shards": shards, "rate": worker.tokens_per_second,
        "requests": worker.requests, "dump_bytes": worker.dump_bytes, "dump_limit": worker.dump_limit,
    }  # fmt: skip


def troubles_json(runs: Iterable[Snapshot]) -> list[Json]:
    """Each trouble once, the worst first, with the runs that have it: a worker may serve many."""
    found: dict[tuple[str, str, str], Json] = {}
    for run in runs:
        for trouble in run.troubles:
            worker = _clip(trouble.worker, LONGEST_NAME)
            told = {"kind": trouble.kind, "worker": worker, "text": _clip(trouble.text), "runs": []}
            # A worker's text holds a time, so that it is not quite the same for every run.
            key = (trouble.kind, trouble.worker, "" if trouble.worker else trouble.text)
            found.setdefault(key, told)["runs"].append(run.run)
    return sorted(found.values(), key=lambda told: KINDS.index(told["kind"]))


def damaged_json(run: str, error: str) -> Json:
    """The trouble of a run whose ledger holds something else."""
    return {"kind": "ledger_damaged", "worker": "", "text": _clip(error), "runs": [run]}


def newest_json(failures: Iterable[tuple[str, Failure]], now: float, number: int) -> list[Json]:
    """The newest `number` of several runs' failures, each with its run. now: Unix time by Redis' clock."""
    newest = sorted(failures, key=lambda one: -one[1].time)[:number]
    return [
        given_up_json(run, one.shard, one.sample, max(0.0, round(now - one.time, 1)) if one.time else None)
        for run, one in newest
    ]


def given_up_json(run: str, shard: int, given: GivenUp, age: float | None = None) -> Json:
    """age: seconds since it ended, None where unknown."""
    return {
        "run": run, "shard": shard, "index": given.index, "ending": str(given.ending), "attempts": given.attempts,
        "error": _clip(given.error, LONGEST_NAME), "detail": _clip(given.detail), "age": age,
    }  # fmt: skip


def _clip(text: str, longest: int = LONGEST_TEXT) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
