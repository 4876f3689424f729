"""Figures to metrics, without a server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from hsqueue.contracts.meters import BOUNDS, DUMP, ENGINE, LEDGER, STAGES, VOLUME, bucket_name, spent_name
from hsqueue.monitoring.exporter import Family, of_meters, of_runs, of_troubles, of_workers
from hsqueue.monitoring.meters import meters_of
from hsqueue.monitoring.pace import NO_PACE, Pace
from hsqueue.monitoring.snapshot import RunSummary
from hsqueue.monitoring.troubles import Trouble
from hsqueue.monitoring.workers import WorkerState

PACE = Pace(120.5, 100.25, 33.0, 1.0e9, 2.0)
RUN = RunSummary("r1", "/runs/r1", "tiny", "hsq.q", 20, 11, 2, 1, 6, 1100, 2000, 110_000, 5, 3, PACE)
WORKER = WorkerState(
    name="gpu0@node", engine="http://127.0.0.1:30000", gpu="NVIDIA H200", host="node", queue="hsq.q", seen=1.5,
    state="serving", paused="", waits_for="", shards=(1, 2), leases=2, tokens_per_second=99.5, requests=7, tokens=800,
    dump_bytes=1 << 20, dump_limit=1 << 30, dump_free=1 << 33, dump_total=1 << 34, engine_quiet=0.25,
    volume_quiet=0.0, answer_seconds=0.5, publish_seconds=0.1,
)  # fmt: skip
COUNTED = meters_of({
    bucket_name(ENGINE, 0.3): "4", bucket_name(ENGINE, 99.0): "1", spent_name(ENGINE): "100200000",
    bucket_name(DUMP, 0.001): "5", spent_name(DUMP): "5000",
    bucket_name(VOLUME, 0.2): "5", spent_name(VOLUME): "900000",
    bucket_name(LEDGER, 0.004): "2", spent_name(LEDGER): "7000", "samples": "5", "tokens": "500", "bytes": "50000",
    "skipped": "2", "failed": "1", "errors.DumpMissing": "3",
})  # fmt: skip
TROUBLES = {"r1": (Trouble("worker_gone", "gpu1@node", "gone"), Trouble("run_stalled", "", "stands"))}


class Given(Collector):
    """Metrics that were made beforehand."""

    def __init__(self, families: Iterable[Family]) -> None:
        self.families = list(families)

    def collect(self) -> Iterator[Metric]:
        return (family.metric for family in self.families)


def registry(*families: Family) -> CollectorRegistry:
    made = CollectorRegistry(auto_describe=False)
    made.register(Given(families))
    return made


def registry_of_one_run() -> CollectorRegistry:
    return registry(*of_runs([RUN]), *of_troubles(TROUBLES), *of_workers([WORKER]), *of_meters({"gpu0@node": COUNTED}))


def scraped(made: CollectorRegistry) -> dict[tuple[str, tuple[str, ...]], float]:
    """As Prometheus reads the text: (name, label values in the order of the names) -> value."""
    text = generate_latest(made).decode()
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_runs_figures() -> None:
    found = scraped(registry(*of_runs([RUN])))
    states = {"done": 11, "skipped": 2, "failed": 1, "pending": 6}
    assert {state: found["hsqueue_run_samples", ("r1", state)] for state in states} == states
    assert found["hsqueue_run_planned_samples", ("r1",)] == sum(states.values())
    for name, value in {
        "tokens": 1100, "planned_tokens": 2000, "states_bytes": 110_000, "shards": 5, "ended_shards": 3,
        "tokens_per_second": 120.5, "overall_tokens_per_second": 100.25, "left_seconds": 33.0, "idle_seconds": 2.0,
    }.items():  # fmt: skip
        assert found[f"hsqueue_run_{name}", ("r1",)] == value, name
    assert found["hsqueue_run_info", ("/runs/r1", "tiny", "r1")] == 1


def test_no_time_is_left_where_nothing_moves() -> None:
    still = RunSummary("r1", "/r", "m", "q", 4, 0, 0, 0, 4, 0, 40, 0, 1, 0, NO_PACE)
    assert ("hsqueue_run_left_seconds", ("r1",)) not in scraped(registry(*of_runs([still])))


def test_a_workers_figures() -> None:
    found = scraped(registry(*of_workers([WORKER])))
    for name, value in {
        "silence_seconds": 1.5, "tokens_per_second": 99.5, "requests_in_flight": 7, "tokens_in_flight": 800,
        "dump_bytes": 1 << 20, "dump_limit_bytes": 1 << 30, "dump_free_bytes": 1 << 33, "dump_size_bytes": 1 << 34,
        "leases": 2, "engine_quiet_seconds": 0.25, "volume_quiet_seconds": 0.0,
    }.items():  # fmt: skip
        assert found[f"hsqueue_worker_{name}", ("gpu0@node",)] == value, name
    states = {state: found["hsqueue_worker_state", (state, "gpu0@node")] for state in ("serving", "paused", "gone")}
    assert states == {"serving": 1, "paused": 0, "gone": 0}


def test_counters_and_histograms() -> None:
    found = scraped(registry(*of_meters({"gpu0@node": COUNTED})))
    one = ("gpu0@node",)
    assert found["hsqueue_published_samples_total", one] == 5
    assert found["hsqueue_request_errors_total", ("DumpMissing", *one)] == 3
    assert found["hsqueue_request_seconds_bucket", ("0.25", *one)] == 0
    assert found["hsqueue_request_seconds_bucket", ("0.5", *one)] == 4
    assert found["hsqueue_request_seconds_bucket", ("60", *one)] == 4
    assert found["hsqueue_request_seconds_bucket", ("+Inf", *one)] == 5
    assert (found["hsqueue_request_seconds_count", one], found["hsqueue_request_seconds_sum", one]) == (5, 100.2)
    buckets = [name for name, _ in found if name == "hsqueue_commit_seconds_bucket"]
    assert len(buckets) == len(BOUNDS)
    assert len(STAGES) == sum(name.endswith("_sum") for name, _ in found)


def test_troubles() -> None:
    found = scraped(registry(*of_troubles(TROUBLES)))
    assert found == {
        ("hsqueue_trouble", ("worker_gone", "r1", "gpu1@node")): 1,
        ("hsqueue_trouble", ("run_stalled", "r1", "")): 1,
    }


@pytest.mark.parametrize("name", ['a"} 1\nhsqueue_forged 1\n', "\ud800", "\x00\x1b[31m", "x" * 10_000, "a\\nb"])
def test_names_that_others_gave_stay_names(name: str) -> None:
    found = scraped(registry(*of_troubles({name: (Trouble("worker_gone", name, ""),)})))
    (((metric, labels), _),) = found.items()
    assert metric == "hsqueue_trouble"
    assert len(labels[1]) <= 200
    assert labels[1].isprintable()


def test_a_series_is_given_once() -> None:
    """Two names may be the same once they are cleaned, and Prometheus would refuse the whole scrape."""
    one, other = Trouble("worker_gone", "\x00", ""), Trouble("worker_gone", "\x01", "")
    assert len(scraped(registry(*of_troubles({"r1": (one, other)})))) == 1
