"""Everything that Redis knows as metrics for Prometheus, read anew at each scrape."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

import redis
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from hsqueue.contracts.errors import LedgerDamaged, RedisUnreachable
from hsqueue.contracts.meters import BOUNDS, DUMP, ENGINE, LEDGER, VOLUME
from hsqueue.ledger.ledger import Ledger
from hsqueue.monitoring.meters import Meters, worker_meters_of_all
from hsqueue.monitoring.snapshot import RunSummary, by_redis, every_worker, overview
from hsqueue.monitoring.troubles import Trouble
from hsqueue.monitoring.workers import STATES, WorkerState

log = logging.getLogger(__name__)

LONGEST_LABEL = 200
STAGES = {
    ENGINE: ("hsqueue_request_seconds", "From a request to the engine's answer."),
    DUMP: ("hsqueue_dump_wait_seconds", "From an answer until its dump was there."),
    VOLUME: ("hsqueue_publish_seconds", "Copying a sample to the volume."),
    LEDGER: ("hsqueue_commit_seconds", "Committing a batch of samples to the ledger."),
}
"""Name and help of each stage's histogram."""


class Family:
    """One metric of any number of series, each named by its labels and given once."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self._given: set[tuple[str, ...]] = set()

    def add(self, labels: Iterable[object], *values: object) -> None:
        """A second series of the same labels would spoil the whole scrape, so only the first counts."""
        names = tuple(label(name) for name in labels)
        if names not in self._given:
            self._given.add(names)
            self.metric.add_metric(names, *values)  # type: ignore[attr-defined]


def label(value: object) -> str:
    """Foreign text that can be encoded and is not too long."""
    return "".join(sign if sign.isprintable() else "?" for sign in str(value)[:LONGEST_LABEL])


def gauge(name: str, text: str, labels: tuple[str, ...]) -> Family:
    return Family(GaugeMetricFamily(f"hsqueue_{name}", text, labels=labels))


def counter(name: str, text: str, labels: tuple[str, ...]) -> Family:
    return Family(CounterMetricFamily(f"hsqueue_{name}", text, labels=labels))


class Exporter(Collector):
    """Of every run and worker that the Redis behind `client` knows. url: for errors."""

    def __init__(self, client: redis.Redis, url: str) -> None:
        self.client, self.url = client, url

    def collect(self) -> Iterator[Metric]:
        """Where Redis does not answer, nothing but that is said: old figures would look like news."""
        up = GaugeMetricFamily("hsqueue_redis_up", "Whether Redis answers.")
        try:
            runs = overview(self.client, self.url)
            workers = every_worker(self.client, self.url)
            meters = worker_meters_of_all(self.client, self.url)
            troubles = {run.run: self._troubles(run) for run in runs if run.pending}
        except RedisUnreachable as error:
            log.warning("%s", error)
            up.add_metric((), 0)
            yield up
            return
        up.add_metric((), 1)
        yield up
        for families in (of_runs(runs), of_troubles(troubles), of_workers(workers), of_meters(meters)):
            yield from (family.metric for family in families)

    def _troubles(self, run: RunSummary) -> tuple[Trouble, ...]:
        try:
            found = by_redis(Ledger(self.client, self.url, run.run))
        except LedgerDamaged as error:
            log.warning("run %s: %s", run.run, error, extra={"run": run.run})
            return ()
        return found.troubles if found is not None else ()


def of_runs(runs: Iterable[RunSummary]) -> list[Family]:
    info = gauge("run_info", "1 for each run; model: planned for.", ("run", "model", "dir"))
    samples = gauge("run_samples", "Samples by how they stand.", ("run", "state"))
    plain = {
        "total": gauge("run_planned_samples", "Samples of the plan.", ("run",)),
        "tokens": gauge("run_tokens", "Tokens of the done samples.", ("run",)),
        "planned": gauge("run_planned_tokens", "Tokens of the plan.", ("run",)),
        "bytes": gauge("run_states_bytes", "Bytes of the done samples' hidden states.", ("run",)),
        "shards": gauge("run_shards", "Shards of the plan.", ("run",)),
        "shards_ended": gauge("run_ended_shards", "Shards with a manifest.", ("run",)),
    }
    recent = gauge("run_tokens_per_second", "Over the last five minutes.", ("run",))
    overall = gauge("run_overall_tokens_per_second", "Since the run's ledger began.", ("run",))
    idle = gauge("run_idle_seconds", "Since a sample ended, where some are pending.", ("run",))
    left = gauge("run_left_seconds", "Until the run ends, at the present rate; absent where nothing moves.", ("run",))
    for run in runs:
        info.add((run.run, run.model, run.dir), 1)
        for state in ("done", "skipped", "failed", "pending"):
            samples.add((run.run, state), getattr(run, state))
        for name, family in plain.items():
            family.add((run.run,), getattr(run, name))
        recent.add((run.run,), run.pace.recent)
        overall.add((run.run,), run.pace.overall)
        idle.add((run.run,), run.pace.idle)
        if run.pace.seconds_left is not None:
            left.add((run.run,), run.pace.seconds_left)
    return [info, samples, *plain.values(), recent, overall, idle, left]


def of_troubles(troubles: dict[str, tuple[Trouble, ...]]) -> list[Family]:
    family = gauge("trouble", "1 for each thing that is wrong now.", ("run", "worker", "kind"))
    for run, found in troubles.items():
        for trouble in found:
            family.add((run, trouble.worker, trouble.kind), 1)
    return [family]


def of_workers(workers: Iterable[WorkerState]) -> list[Family]:
    one = ("worker",)
    info = gauge("worker_info", "1 for each worker.", ("worker", "engine", "gpu", "host", "queue"))
    state = gauge("worker_state", "1 for the state that a worker is in, 0 for the others.", ("worker", "state"))
    plain = {
        "seen": gauge("worker_silence_seconds", "Since a worker's last sign of life.", one),
        "tokens_per_second": gauge("worker_tokens_per_second", "Published over five minutes.", one),
        "requests": gauge("worker_requests_in_flight", "Requests sent and not answered.", one),
        "tokens": gauge("worker_tokens_in_flight", "Tokens of these requests.", one),
        "dump_bytes": gauge("worker_dump_bytes", "Dumps awaited or unread.", one),
        "dump_limit": gauge("worker_dump_limit_bytes", "What these may come to.", one),
        "dump_free": gauge("worker_dump_free_bytes", "Free on the dump directory's file system.", one),
        "dump_total": gauge("worker_dump_size_bytes", "Size of the dump directory's file system.", one),
        "leases": gauge("worker_leases", "Shards that a worker holds.", one),
        "engine_quiet": gauge("worker_engine_quiet_seconds", "Since the engine answered, with requests waiting.", one),
        "volume_quiet": gauge("worker_volume_quiet_seconds", "Since the volume took a sample, with some waiting.", one),
    }
    for worker in workers:
        info.add((worker.name, worker.engine, worker.gpu, worker.host, worker.queue), 1)
        for name in STATES:
            state.add((worker.name, name), int(worker.state == name))
        for name, family in plain.items():
            family.add((worker.name,), getattr(worker, name))
    return [info, state, *plain.values()]


def of_meters(meters: dict[str, Meters]) -> list[Family]:
    one = ("worker",)
    plain = {
        "samples": counter("published_samples", "Samples published.", one),
        "tokens": counter("published_tokens", "Tokens of these.", one),
        "bytes": counter("published_bytes", "Bytes of their files.", one),
        "skipped": counter("skipped_samples", "Samples skipped.", one),
        "failed": counter("failed_samples", "Samples failed.", one),
    }
    errors = counter("request_errors", "Requests that came to nothing, by error.", ("worker", "error"))
    stages = {
        stage: Family(HistogramMetricFamily(name, text, labels=("worker",))) for stage, (name, text) in STAGES.items()
    }
    for worker, found in meters.items():
        for name, family in plain.items():
            family.add((worker,), getattr(found, name))
        for error, number in found.errors.items():
            errors.add((worker, error), number)
        for stage, family in stages.items():
            histogram = found.stages[stage]
            family.add((worker,), _buckets(histogram.cumulative), histogram.seconds)
    return [*plain.values(), errors, *stages.values()]


def _buckets(cumulative: tuple[int, ...]) -> list[tuple[str, float]]:
    names = ("+Inf" if bound == float("inf") else f"{bound:g}" for bound in BOUNDS)
    return [(name, float(count)) for name, count in zip(names, cumulative, strict=True)]
