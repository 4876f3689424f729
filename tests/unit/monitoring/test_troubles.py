"""What counts as wrong, and what does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hsqueue.monitoring.failures import Failure
from hsqueue.monitoring.limits import FIRST_ANSWER, HEARTBEAT, QUIET, SILENCE, STALLED
from hsqueue.monitoring.troubles import KINDS, Trouble, troubles
from hsqueue.monitoring.workers import WorkerState
from tests.support.views import WORKING, failed, skipped, worker

NOW = 1000.0


def found(*workers: WorkerState, pending: int = 10, failures: tuple[Failure, ...] = (), idle: float = 1.0) -> list[str]:
    seen = asked(*workers, pending=pending, failures=failures, idle=idle)
    return [f"{trouble.kind} {trouble.worker}".strip() for trouble in seen]


def asked(
    *workers: WorkerState, pending: int = 10, failures: tuple[Failure, ...] = (), idle: float = 1.0
) -> tuple[Trouble, ...]:
    return troubles(pending, workers, replace(WORKING, idle=idle), failures, NOW)


def test_a_run_that_goes_well_has_none() -> None:
    assert found(worker(0), worker(1)) == []


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"state": "gone", "seen": 14.0}, "worker_gone"),
        ({"state": "paused", "waits_for": "engine", "paused": "EngineDown: refused"}, "engine_down"),
        ({"state": "paused", "waits_for": "volume", "paused": "VolumeUnusable: full"}, "volume_unusable"),
        ({"engine_quiet": QUIET}, "engine_stalled"),
        ({"engine_quiet": FIRST_ANSWER, "answer_seconds": 0.0}, "engine_stalled"),
        ({"volume_quiet": QUIET}, "volume_slow"),
        ({"publish_seconds": 1.5, "answer_seconds": 0.5}, "volume_slow"),
        ({"dump_free": 4, "dump_total": 100}, "dumps_full"),
    ],
)
def test_what_is_wrong_with_a_worker_is_named_with_it(fields: dict[str, object], kind: str) -> None:
    (trouble,) = asked(worker(0), worker(1, **fields))
    assert (trouble.kind, trouble.worker) == (kind, "gpu1@node0")
    assert "gpu1@node0" in trouble.text


@pytest.mark.parametrize(
    "fields",
    [
        {"engine_quiet": QUIET - 0.1},
        {"engine_quiet": 15.0, "answer_seconds": 8.0},  # long prompts: answers take so long
        {"engine_quiet": 20.0, "answer_seconds": 0.0},  # the first answer is not there yet
        {"publish_seconds": 0.9, "answer_seconds": 0.1},
        {"publish_seconds": 2.0, "answer_seconds": 3.0},  # the engine is slower still
        {"publish_seconds": 2.0, "answer_seconds": 0.1, "shards": ()},  # it was so, and nothing is written now
        {"volume_quiet": QUIET - 0.1},
        {"dump_free": 5, "dump_total": 100},
        {"dump_free": 0, "dump_total": 0},
        {"state": "stopping"},
        {"seen": 9.9},
    ],
)
def test_what_only_looks_wrong_is_not_named(fields: dict[str, object]) -> None:
    assert found(worker(0, **fields)) == []


def test_nothing_is_wrong_any_more_once_nothing_is_pending() -> None:
    assert found(worker(0, state="gone"), pending=0, failures=(failed(time=NOW),), idle=1e6) == []


def test_a_gone_worker_says_only_that_it_is_gone() -> None:
    assert found(worker(0, state="gone", engine_quiet=60.0, volume_quiet=60.0), worker(1)) == ["worker_gone gpu0@node0"]


def test_without_a_living_worker_the_run_is_nobodys() -> None:
    assert found() == ["no_worker"]
    assert found(worker(0, state="gone")) == ["no_worker", "worker_gone gpu0@node0"]
    assert found(worker(0, state="paused", waits_for="engine")) == ["engine_down gpu0@node0"]


def test_a_failed_sample_is_news_for_five_minutes() -> None:
    (trouble,) = asked(worker(), failures=(failed(17, NOW - 1), failed(4, NOW - 299), failed(2, NOW - 301)))
    assert trouble.kind == "samples_failing"
    assert "2 samples failed" in trouble.text
    assert "sample 17, DumpMissing" in trouble.text
    assert found(worker(), failures=(failed(17, NOW - 301), skipped(3, NOW))) == []
    assert found(worker(), failures=(failed(17, 0.0),)) == [], "of an unknown time after a rebuild"


def test_a_run_stands_still_only_while_somebody_is_at_it() -> None:
    assert found(worker(), idle=STALLED) == ["run_stalled"]
    assert found(worker(shards=()), idle=STALLED) == []
    assert found(worker(), idle=STALLED - 1) == []


def test_the_worst_comes_first() -> None:
    kinds = [line.split(" ")[0] for line in found(
        worker(0, engine_quiet=9.0), worker(1, state="gone"), worker(2, state="paused", waits_for="volume"),
        failures=(failed(time=NOW),), idle=STALLED,
    )]  # fmt: skip
    assert kinds == sorted(kinds, key=KINDS.index)
    assert kinds[0] == "volume_unusable"


def test_everything_can_be_seen_within_fifteen_seconds() -> None:
    """A sign of life and a look once a second are the delay; the rest is for a command to start on a busy machine."""
    assert SILENCE + 1 <= 10
    assert QUIET + HEARTBEAT + 1 <= 10
    assert SILENCE > 3 * HEARTBEAT, "two signs may be late"
