"""States of runs as surfaces show them, made up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hsqueue.cli.words import View
from hsqueue.contracts.sample import Ending, GivenUp
from hsqueue.ledger.signs import Sign
from hsqueue.monitoring.failures import Failure
from hsqueue.monitoring.pace import Pace
from hsqueue.monitoring.snapshot import Snapshot
from hsqueue.monitoring.troubles import Trouble
from hsqueue.monitoring.workers import WorkerState

WORKING = Pace(recent=81713.2, overall=76101.9, seconds_left=8234.0, began=1.0, idle=1.0)


def worker(k: int = 0, **more: Any) -> WorkerState:
    """Number `k` of many, at work; `more` replaces fields."""
    found: dict[str, Any] = {
        "name": f"gpu{k}@node{k // 8}", "engine": f"http://127.0.0.1:{30000 + k}", "gpu": "NVIDIA H200",
        "host": f"node{k // 8}", "queue": "q", "seen": 1.2, "state": "serving", "paused": "", "waits_for": "",
        "shards": (4 + k, 7 + k), "leases": 2, "tokens_per_second": 20434.2 - 10 * k, "requests": 12, "tokens": 40000,
        "dump_bytes": 3 << 30, "dump_limit": 8 << 30, "dump_free": 100, "dump_total": 200, "engine_quiet": 0.2,
        "volume_quiet": 0.0, "answer_seconds": 0.4, "publish_seconds": 0.1,
    }  # fmt: skip
    return WorkerState(**{**found, **more})


def failed(index: int = 17, time: float = 995.0, detail: str = "no dump within 60 s") -> Failure:
    return Failure(time, index // 512, GivenUp(index, Ending.FAILED, 5, "DumpMissing", detail))


def skipped(index: int = 170, time: float = 900.0) -> Failure:
    return Failure(time, index // 512, GivenUp(index, Ending.SKIPPED, 1, "SampleTooLong", "5000 tokens, 4096 fit"))


def view(
    workers: Sequence[WorkerState] = (), troubles: Sequence[Trouble] = (), failures: Sequence[Failure] = (),
    **more: Any,
) -> View:  # fmt: skip
    """A third of 37,312 samples is done; `more` replaces fields of the snapshot."""
    found: dict[str, Any] = {
        "run": "a2156bf0e8", "dir": "/volume/run", "model": "m", "queue": "q", "total": 37312, "done": 12345,
        "skipped": 17, "failed": 3, "pending": 24947, "tokens": 7407000, "planned": 22387200, "bytes": 242712576000,
        "shards": 73, "shards_ended": 24, "pace": WORKING, "source": "ledger", "workers": tuple(workers),
        "troubles": tuple(troubles),
    }  # fmt: skip
    return View(Snapshot(**{**found, **more}), tuple(failures))


def complete() -> View:
    pace = Pace(recent=81713.2, overall=76101.9, seconds_left=0.0, began=1.0, idle=0.0)
    return view([worker(shards=())], done=37312, skipped=0, failed=0, pending=0, shards_ended=73, pace=pace)


WORDS: dict[str, Any] = {
    "engine": "http://e", "gpu": "NVIDIA H200", "host": "node0", "queue": "q", "state": "serving", "paused": "",
    "waits_for": "", "leases": 2, "tokens_per_second": 100.5, "requests": 3, "tokens": 900, "dump_bytes": 10,
    "dump_limit": 100, "dump_free": 50, "dump_total": 100, "engine_quiet": 0.5, "volume_quiet": 0.0,
    "answer_seconds": 0.2, "publish_seconds": 0.1,
}  # fmt: skip


def sign(age: float = 1.0, **more: object) -> Sign:
    return Sign(age, json.dumps({**WORDS, **more}))
