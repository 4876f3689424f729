"""A real Prometheus over the exporter of real runs: its figures are those of status, Flower and the report, and it
tells of a worker's death.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from tests.chaos.operations.processes import main_of, tree_of
from tests.support.cli import hsqueue, start
from tests.support.engine import Engine, engine
from tests.support.flower import flower
from tests.support.page import read_page
from tests.support.prometheus import Prometheus, prometheus
from tests.support.prompts import token_prompts
from tests.support.redis import RedisServer, free_port, redis_server

SAMPLES = 240
LONG = 20_000
"""Samples that nobody is through with while these tests last."""
BAR = 15.0
"""Seconds within which every surface names a fault."""
TROUBLE = {"seed": 3, "abort": 0.05, "slow": 0.4}
NAMES = ("gpu0", "gpu1")


@dataclass(slots=True)
class Room:
    """Two engines with a worker each, an exporter and a Prometheus. page: fetches one of Flower's."""

    directory: Path
    redis: RedisServer
    engines: list[Engine]
    workers: dict[str, subprocess.Popen[bytes]]
    prometheus: Prometheus
    metrics: str
    page: Callable[[str], str]

    @property
    def env(self) -> dict[str, str]:
        return {"HSQ_REDIS_URL": self.redis.url}

    def run(self, name: str, samples: int) -> Path:
        """A run that has just been queued."""
        root = self.directory / name
        prompts = token_prompts(self.directory / f"{name}.jsonl", [12 + k % 40 for k in range(samples)])
        planned = hsqueue("plan", prompts, "--out", root, "--shard-size", "24", "--dump-dir", self.engines[0].dump_dir)
        assert planned.status == 0, planned.text
        queued = hsqueue("enqueue", root, env=self.env)
        assert queued.status == 0, queued.text
        return root

    def status(self, root: Path) -> dict[str, Any]:
        return hsqueue("status", root, "--json", env=self.env).json()

    def flower(self, run: str) -> dict[str, Any]:
        """The run in Flower's Samples tab."""
        runs = json.loads(self.page("api/samples"))["runs"]
        found: dict[str, Any] = next(one for one in runs if one["run"] == run)
        return found

    def report(self, root: Path) -> Any:
        out = self.directory / "report.html"
        made = hsqueue("report", root, "-o", out, env=self.env)
        assert made.status == 0, made.text
        return read_page(out.read_text())


def end(process: subprocess.Popen[bytes]) -> None:
    for found in tree_of(main_of(lambda: process))():
        with contextlib.suppress(psutil.NoSuchProcess):
            found.kill()
    process.wait()


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    directory = tmp_path_factory.mktemp("room")
    port = free_port()
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(redis_server(tmp_path_factory.mktemp("redis")))
        env = {"HSQ_REDIS_URL": redis.url, "HSQ_MAX_ATTEMPTS": "1", "HSQ_MAX_IN_FLIGHT": "8"}
        exporter = start("exporter", "--port", str(port), log=directory / "exporter.log", env=env)
        stack.callback(end, exporter)
        watcher = stack.enter_context(prometheus(directory, f"127.0.0.1:{port}"))
        engines = [stack.enter_context(engine(directory, misbehave=TROUBLE, name=name)) for name in NAMES]
        workers = {}
        for name, one in zip(NAMES, engines, strict=True):
            workers[name] = start(
                "worker", "--name", name, "--engine", one.url, "--dump-dir", one.dump_dir,
                log=directory / f"{name}.worker.log", env=env,
            )  # fmt: skip
            stack.callback(end, workers[name])
        login = {"HSQ_REDIS_URL": redis.url, "HSQ_FLOWER_PASSWORD": "of-flower"}
        page = stack.enter_context(flower(free_port(), directory / "flower.log", login))
        yield Room(directory, redis, engines, workers, watcher, f"http://127.0.0.1:{port}/metrics", page)


def test_figures_at_the_end_of_a_run_are_the_same_everywhere(room: Room) -> None:
    root = room.run("short", SAMPLES)
    room.prometheus.until(lambda: room.status(root)["shards_ended"] == SAMPLES // 24, "the run does not end")
    told = room.status(root)
    run = told["run"]
    assert told["done"] + told["failed"] == told["total"] == SAMPLES
    assert told["failed"] > 0, "the engine was to let some fail"

    page = room.report(root)
    for name in ("total", "done", "skipped", "failed", "pending", "tokens", "bytes", "shards", "shards_ended"):
        assert page.figures[name] == told[name], name
    assert page.figures["recent"] == told["pace"]["recent"]
    assert page.figures["failed RequestAborted"] == told["failed"]

    shown = room.flower(run)
    assert json.loads(room.page(f"api/samples/{run}"))["run"] == shown
    for name in ("total", "done", "skipped", "failed", "pending", "tokens", "bytes", "shards", "shards_ended"):
        assert shown[name] == told[name], name
    assert (shown["recent"], shown["overall"]) == (told["pace"]["recent"], told["pace"]["overall"])

    ask = room.prometheus
    states = ("done", "skipped", "failed", "pending")
    expected = {(run, state): float(told[state]) for state in states}
    ask.until(lambda: ask.ask("hsqueue_run_samples") == expected, f"Prometheus has not {expected}")
    for metric, name in {
        "run_planned_samples": "total", "run_tokens": "tokens", "run_planned_tokens": "planned",
        "run_states_bytes": "bytes", "run_shards": "shards", "run_ended_shards": "shards_ended",
    }.items():  # fmt: skip
        assert ask.number(f"hsqueue_{metric}") == told[name], metric
    assert ask.number("hsqueue_run_tokens_per_second") == told["pace"]["recent"]
    assert ask.number("hsqueue_run_overall_tokens_per_second") == told["pace"]["overall"]
    # What the workers counted comes to what the ledger has, since none of them died.
    counted = {"samples": told["done"], "tokens": told["tokens"], "bytes": page.figures["file_bytes"]}
    ask.until(lambda: ask.number("sum(hsqueue_published_samples_total)") == told["done"], "counters lag behind")
    assert {name: ask.number(f"sum(hsqueue_published_{name}_total)") for name in counted} == counted
    assert ask.number("sum(hsqueue_failed_samples_total)") == told["failed"]
    assert ask.number('sum(hsqueue_request_errors_total{error="RequestAborted"})') == told["failed"]
    assert ask.number("sum(hsqueue_publish_seconds_count)") == told["done"]
    seconds = ask.number("sum(hsqueue_publish_seconds_sum)")
    assert seconds == pytest.approx(page.figures["seconds volume"], abs=0.01)


def test_a_killed_worker_is_told_of_by_an_alert_and_by_the_report(room: Room) -> None:
    root = room.run("long", LONG)
    run = room.status(root)["run"]
    victim = f"gpu0@{os.uname().nodename}"
    ask = room.prometheus
    ask.until(lambda: ask.ask("hsqueue_worker_leases > 0").keys() >= {(victim,)}, "the worker has nothing to do")
    assert ask.ask('hsqueue_trouble{kind="worker_gone"}') == {}
    end(room.workers["gpu0"])
    began = time.monotonic()
    gone = {"alertname": "HsqueueWorkerGone", "run": run, "worker": victim}
    ask.until(lambda: any(gone.items() <= alert.items() for alert in ask.firing()), "no alert fires")
    assert time.monotonic() - began < BAR
    assert f"worker {victim} is gone" in json.loads(room.page("api/samples"))["troubles"][0]["text"]
    assert f"worker {victim} is gone" in room.report(root).text
    assert time.monotonic() - began < BAR + 5, "the report itself takes its time on a busy machine"
    assert ask.ask(f'hsqueue_worker_state{{worker="{victim}"}} == 1') == {("gone", victim): 1.0}


def test_a_redis_that_is_away_is_said_and_nothing_else(room: Room) -> None:
    """The last test of this room: old figures would look like news."""
    room.redis.kill()
    text = requests.get(room.metrics, timeout=60).text
    assert [line for line in text.splitlines() if not line.startswith("#")] == ["hsqueue_redis_up 0.0"]
    room.redis.start()
    room.prometheus.until(lambda: "hsqueue_redis_up 1.0" in requests.get(room.metrics, timeout=60).text, "still away")


def test_a_port_in_use_is_named(redis: RedisServer) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        found = hsqueue("exporter", "--port", str(port), env={"HSQ_REDIS_URL": redis.url})
    assert (found.status, f"cannot listen on 127.0.0.1:{port}" in found.err) == (2, True), found.text
