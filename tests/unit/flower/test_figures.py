"""What the pages are given: sums, each worker and each trouble once, foreign text with an end."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from hsqueue.contracts.sample import Ending, GivenUp
from hsqueue.monitoring.failures import Failure
from hsqueue.monitoring.flower.figures import (
    LONGEST_NAME,
    LONGEST_TEXT,
    newest_json,
    run_json,
    totals,
    troubles_json,
    workers_json,
)
from hsqueue.monitoring.pace import Pace
from hsqueue.monitoring.snapshot import Snapshot
from hsqueue.monitoring.troubles import Trouble
from hsqueue.monitoring.workers import WorkerState

WORKER = WorkerState(
    name="gpu0@a", engine="http://a:1", gpu="H200", host="a", queue="q", seen=1.0, state="serving", paused="",
    waits_for="", shards=(3,), leases=1, tokens_per_second=10.0, requests=1, tokens=2, dump_bytes=3, dump_limit=4,
    dump_free=5, dump_total=6, engine_quiet=0.0, volume_quiet=0.0, answer_seconds=0.1, publish_seconds=0.1,
)  # fmt: skip
RUN = Snapshot(
    run="r1", dir="/v/r1", model="/m", queue="q", total=100, done=40, skipped=1, failed=2, pending=57, tokens=4000,
    planned=10000, bytes=400, shards=10, shards_ended=4, pace=Pace(50.0, 40.0, 120.0, 1.0, 0.0), source="ledger",
    workers=(WORKER,), troubles=(),
)  # fmt: skip
OVER = replace(
    RUN, run="r2", done=98, skipped=0, pending=0, workers=(), pace=Pace(70.0, 70.0, 0.0, 1.0, 0.0)
)  # fmt: skip


def test_totals_are_of_the_unfinished_runs() -> None:
    slow = replace(RUN, run="r3", pace=Pace(5.0, 5.0, 900.0, 1.0, 0.0))
    found = totals([RUN, OVER, slow])
    assert (found["total"], found["done"], found["pending"], found["failed"]) == (200, 80, 114, 4)
    assert (found["runs"], found["unfinished"], found["left"], found["recent"]) == (2, 2, 900.0, 55.0)


def test_totals_where_every_run_has_ended() -> None:
    found = totals([OVER])
    assert (found["total"], found["unfinished"], found["left"], found["recent"]) == (100, 0, None, 0)


def test_totals_of_nothing() -> None:
    assert totals([])["total"] == 0


def test_a_worker_comes_once_with_its_shards_of_all_runs() -> None:
    other = replace(RUN, run="r3", workers=(replace(WORKER, shards=(7, 8)),))
    idle = replace(WORKER, name="gpu1@a")
    found = workers_json([WORKER, idle], [RUN, other])
    assert [(one["name"], one["shards"]) for one in found] == [
        ("gpu0@a", [("r1", 3), ("r3", 7), ("r3", 8)]), ("gpu1@a", []),
    ]  # fmt: skip


def test_a_trouble_comes_once_with_its_runs_the_worst_first() -> None:
    def run(name: str, seconds: int) -> Snapshot:
        gone = Trouble("worker_gone", "gpu0@a", f"gone for {seconds} s")
        return replace(RUN, run=name, troubles=(gone, Trouble("no_worker", "", "no worker")))

    found = troubles_json([run("r1", 11), run("r2", 12)])
    assert [(one["kind"], one["text"], one["runs"]) for one in found] == [
        ("no_worker", "no worker", ["r1", "r2"]), ("worker_gone", "gone for 11 s", ["r1", "r2"]),
    ]  # fmt: skip


def test_two_runs_troubles_of_one_kind_stay_apart_where_they_differ() -> None:
    runs = [replace(RUN, run=n, troubles=(Trouble("samples_failing", "", f"{n} fails"),)) for n in ("r1", "r2")]
    assert [one["runs"] for one in troubles_json(runs)] == [["r1"], ["r2"]]


def test_the_newest_failures_of_several_runs() -> None:
    given = GivenUp(5, Ending.FAILED, 3, "DumpMissing", "none")
    found = newest_json(
        [("r1", Failure(90.0, 1, given)), ("r2", Failure(0.0, 2, given)), ("r3", Failure(99.0, 3, given))], 100.0, 2
    )
    assert [(one["run"], one["shard"], one["age"]) for one in found] == [("r3", 3, 1.0), ("r1", 1, 10.0)]


def test_an_age_that_is_not_known_is_none() -> None:
    given = GivenUp(5, Ending.SKIPPED, 3, "SampleTooLong", "none")
    assert newest_json([("r2", Failure(0.0, 2, given))], 100.0, 2)[0]["age"] is None


@pytest.mark.parametrize("field", ["name", "engine", "gpu", "host", "paused"])
def test_foreign_text_has_an_end(field: str) -> None:
    worker = replace(WORKER, **{field: "x" * 10**6})  # type: ignore[arg-type]
    assert len(json.dumps(workers_json([worker], [RUN]))) < 10 * LONGEST_NAME + LONGEST_TEXT
    assert len(json.dumps(run_json(replace(RUN, model="x" * 10**6)))) < 10 * LONGEST_NAME + LONGEST_TEXT
