"""A process's place among its worker's, as the main process reads it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hsworker.budget import SLOTS
from hsworker.gauges import RECENT, Gauge, Gauges, Reading, Totals
from tests.support.waiting import await_true


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the system's monotonic clock shows."""
    now = [0.0]
    monkeypatch.setattr("hsworker.gauges.time.monotonic", lambda: now[0])
    return now


@pytest.fixture
def gauges(tmp_path: Path) -> Gauges:
    return Gauges(tmp_path / "gauges")


def only(gauges: Gauges, gauge: Gauge) -> Reading:
    gauge.write()
    (reading,) = gauges.readings()
    return reading


def test_waiting_for_an_answer_begins_with_the_first_request(gauges: Gauges, clock: list[float]) -> None:
    gauge = gauges.claim()
    clock[0] = 100.0
    gauge.asked()
    clock[0] = 105.0
    gauge.asked()
    assert only(gauges, gauge) == Reading(os.getpid(), requests=2, heard=100.0), "a second request is no answer"
    gauge.answered(None)
    assert only(gauges, gauge).heard == 100.0, "an error is no answer"
    clock[0] = 107.0
    gauge.answered(2.0)
    assert only(gauges, gauge) == Reading(os.getpid(), heard=107.0, answer_seconds=2.0 / RECENT)
    clock[0] = 200.0
    gauge.asked()
    assert only(gauges, gauge).heard == 200.0, "in between there was nothing to wait for"


def test_a_publication_is_under_way_until_it_ends_well_or_not(gauges: Gauges, clock: list[float]) -> None:
    gauge = gauges.claim()
    clock[0] = 10.0
    with gauge.publication(7):
        clock[0] = 14.0
        assert (only(gauges, gauge).publishing, only(gauges, gauge).published) == (1, 10.0)
    with pytest.raises(OSError, match="full"), gauge.publication(9):
        raise OSError("full")
    assert (only(gauges, gauge).publishing, only(gauges, gauge).published) == (0, 14.0)
    assert only(gauges, gauge).publish_seconds == pytest.approx(4.0 / RECENT * (1 - 1 / RECENT))
    assert gauges.totals() == Totals(samples=1, tokens=7)


def test_one_slow_sample_is_no_rule_and_eight_are(gauges: Gauges) -> None:
    gauge, means = gauges.claim(), []
    for _ in range(RECENT):
        gauge.asked()
        gauge.answered(2.0)
        means.append(only(gauges, gauge).answer_seconds)
    assert means[0] < 1.0 < means[-1]


def test_threads_lose_none(gauges: Gauges) -> None:
    gauge = gauges.claim()

    def work() -> None:
        for _ in range(500):
            gauge.asked()
            gauge.answered(0.1)
            with gauge.publication(3):
                pass

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (only(gauges, gauge).requests, only(gauges, gauge).publishing) == (0, 0)
    assert gauges.totals() == Totals(4000, 12000)


WORKER = """
import sys
from pathlib import Path
from hsworker.gauges import Gauges
gauge = Gauges(Path(sys.argv[1])).claim()
gauge.asked()
with gauge.publication(5):
    pass
gauge.write()
print("ready", flush=True)
sys.stdin.read()
"""


def test_the_dead_are_not_read_but_what_they_published_counts(tmp_path: Path) -> None:
    path = tmp_path / "gauges"
    gauges = Gauges(path)
    processes = []
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-c", WORKER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        processes.append(process)
    assert sorted(reading.pid for reading in gauges.readings()) == sorted(process.pid for process in processes)
    assert gauges.totals() == Totals(2, 10)
    for process in processes:
        process.kill()
        process.communicate()
    assert gauges.readings() == []
    assert gauges.totals() == Totals(2, 10)
    gauge = gauges.claim()
    with gauge.publication(1):
        pass
    gauge.write()
    assert gauges.totals() == Totals(3, 11), "whoever takes a place goes on counting there"


def test_more_processes_than_places_are_refused(gauges: Gauges) -> None:
    for _ in range(SLOTS):
        gauges.claim()
    with pytest.raises(RuntimeError, match="share one engine"):
        gauges.claim()


def test_a_thread_writes_what_the_others_tell(gauges: Gauges) -> None:
    gauge = gauges.claim()
    gauge.start()
    gauge.asked()
    await_true(lambda: gauges.readings()[0].requests == 1, "nobody writes")
