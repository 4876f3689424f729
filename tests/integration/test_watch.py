"""Real workers and engines; what goes wrong with them is named within 15 s by ``status``, Flower, the exporter and the
report.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.rebuild import reconcile
from hsqueue.monitoring.snapshot import Snapshot, by_redis
from hsqueue.planning.plan import load_run
from hsqueue.queue.app import make_app
from hsqueue.queue.producer import enqueue
from hsqueue.store.layout import RunLayout
from tests.chaos.operations.freeze import Freeze
from tests.chaos.operations.processes import main_of, tree_of
from tests.chaos.operations.system import SlowFsync, shimmed
from tests.support.cli import QUICK, command, hsqueue, start
from tests.support.engine import Engine, environment, start_engine
from tests.support.flower import flower
from tests.support.prompts import token_prompts
from tests.support.redis import RedisServer, free_port, redis_server
from tests.support.waiting import await_true

SAMPLES = 20_000
"""More than these tests can be through with."""
SLOW = {"slow": 0.6}
BAR = 15.0
PATIENCE = 90.0


@dataclass(slots=True)
class Place:
    """One engine with its worker."""

    name: str
    engine: Engine
    directory: Path
    redis: RedisServer
    worker: subprocess.Popen[bytes] | None = None

    @property
    def full_name(self) -> str:
        return f"{self.name}@{os.uname().nodename}"

    @property
    def control(self) -> Path:
        return self.directory / f"{self.name}.control"

    def tend(self) -> None:
        if self.worker is None or self.worker.poll() is not None:
            env = {**environment(), **QUICK, "HSQ_REDIS_URL": self.redis.url, "HSQ_MAX_IN_FLIGHT": "8"}
            arguments = ("worker", "--name", self.name, "--engine", self.engine.url, "--dump-dir", self.engine.dump_dir)
            with (self.directory / f"{self.name}.worker.log").open("ab") as log:
                self.worker = subprocess.Popen(
                    command(*arguments), stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
                    env=shimmed(env, self.control),
                )  # fmt: skip

    def kill(self) -> None:
        for process in tree_of(main_of(lambda: self.worker))():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if self.worker is not None:
            self.worker.wait()


@dataclass(slots=True)
class Site:
    root: Path
    redis: RedisServer
    run: str
    places: tuple[Place, ...]
    flower: Callable[[str], str]
    metrics: str
    last: Snapshot | None = None

    @property
    def env(self) -> dict[str, str]:
        return {"HSQ_REDIS_URL": self.redis.url}

    def look(self) -> Snapshot:
        """As ``status`` does, whose figures add up whenever it is called."""
        with contextlib.closing(self.redis.client()) as client:
            found = by_redis(Ledger(client, self.redis.url, self.run))
        assert found is not None
        assert found.total == found.done + found.skipped + found.failed + found.pending == SAMPLES
        self.last = found
        return found

    def status(self) -> dict[str, Any]:
        found = hsqueue("status", self.root, "--json", env=self.env).json()
        assert found["total"] == found["done"] + found["skipped"] + found["failed"] + found["pending"] == SAMPLES
        return found

    def report(self) -> str:
        out = self.places[0].directory / "report.html"
        made = hsqueue("report", self.root, "-o", out, env=self.env)
        assert made.status == 0, made.text
        return out.read_text()

    def exported(self) -> list[dict[str, str]]:
        families = text_string_to_metric_families(requests.get(self.metrics, timeout=30).text)
        return [one.labels for family in families for one in family.samples if one.name == "hsqueue_trouble"]

    def is_named(self, kind: str, worker: str, words: str) -> bool:
        """By its words as well: a volume that was slow just now may stand still."""
        return any((t.kind, t.worker) == (kind, worker) and words in t.text for t in self.look().troubles)

    def troubles(self) -> set[tuple[str, str]]:
        return {(trouble.kind, trouble.worker) for trouble in self.look().troubles}

    def goes_well(self) -> bool:
        """Both workers are at it, and nothing is wrong."""
        found = self.look()
        at_it = [w for w in found.workers if w.state == "serving" and w.answer_seconds and w.shards]
        return not found.troubles and len(at_it) == 2

    def assert_named(self, kind: str, worker: str, words: str) -> None:
        """Within BAR from now, to whoever asks: ``status``, its JSON, Flower, the exporter and the report."""
        began = time.monotonic()
        await_true(lambda: self.is_named(kind, worker, words), lambda: f"{words!r} is not said: {self.last}")
        assert time.monotonic() - began < BAR
        for page in ("api/samples", f"api/samples/{self.run}"):
            told = [t for t in json.loads(self.flower(page))["troubles"] if (t["kind"], t["worker"]) == (kind, worker)]
            assert [words in trouble["text"] for trouble in told] == [True], page
        assert {"run": self.run, "worker": worker, "kind": kind} in self.exported()
        found = self.status()["troubles"]
        assert (kind, worker) in [(trouble["kind"], trouble["worker"]) for trouble in found]
        assert words in hsqueue("status", self.root, env=self.env).out
        assert words in self.report()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("watch")
    root, places = directory / "run", list[Place]()
    port = free_port()
    with redis_server(tmp_path_factory.mktemp("redis")) as redis:
        env = {"HSQ_REDIS_URL": redis.url, "HSQ_FLOWER_PASSWORD": "of-flower"}
        exporter = start("exporter", "--port", str(port), log=directory / "exporter.log", env=env)
        try:
            for name in ("gpu0", "gpu1"):
                places.append(Place(name, start_engine(directory, misbehave=SLOW, name=name), directory, redis))
            prompts = token_prompts(directory / "prompts.jsonl", [20] * SAMPLES)
            planned = hsqueue(
                "plan", prompts, "--out", root, "--shard-size", "64", "--dump-dir", places[0].engine.dump_dir
            )
            assert planned.status == 0, planned.text
            info = load_run(root)
            enqueue(make_app(redis.url), reconcile(redis.client(), redis.url, RunLayout(root), info).ledger, info)
            with flower(free_port(), directory / "flower.log", env) as page:
                yield Site(root, redis, info.run, tuple(places), page, f"http://127.0.0.1:{port}/metrics")
        finally:
            exporter.kill()
            exporter.wait()
            for place in places:
                place.kill()
                place.engine.kill()


@pytest.fixture
def site(whole: Site) -> Site:
    """Where everything goes well."""
    for place in whole.places:
        place.control.unlink(missing_ok=True)
        place.tend()
    await_true(whole.goes_well, lambda: f"the run does not go well: {whole.last}")
    return whole


def test_a_run_that_goes_well_shows_how_far_how_fast_and_who_works(site: Site) -> None:
    await_true(lambda: site.look().pace.recent > 0 and site.look().done > 50, "nothing gets done")
    found = site.status()
    assert found["pace"]["recent"] > 0
    for worker in found["workers"]:
        assert (worker["gpu"], worker["dump_limit"]) == ("cpu", 8 << 30)
        assert worker["seen"] < 10
    text = hsqueue("status", site.root, env=site.env).out
    assert "% of 20,000 samples, about" in text
    assert "tokens/s over the last five minutes" in text
    for place in site.places:
        assert f"{place.full_name} on {place.engine.url} (cpu): at shard" in text


def test_a_killed_worker_is_named_and_comes_back(site: Site) -> None:
    victim = site.places[0]
    victim.kill()
    site.assert_named("worker_gone", victim.full_name, f"worker {victim.full_name} is gone")
    victim.tend()
    await_true(lambda: site.troubles() == set(), "the worker is back and still called gone")


def test_a_worker_that_ends_in_an_orderly_way_is_missed_by_nobody(site: Site) -> None:
    leaver = site.places[1]
    assert leaver.worker is not None
    leaver.worker.send_signal(signal.SIGTERM)
    leaver.worker.wait(60)
    assert [w.name for w in site.look().workers] == [site.places[0].full_name]


def test_a_stalled_engine_is_named_until_it_goes_on(site: Site) -> None:
    place = site.places[1]
    freeze = Freeze(main_of(lambda: place.engine.process))
    freeze.apply()
    try:
        site.assert_named("engine_stalled", place.full_name, f"the engine at {place.engine.url} stands still")
    finally:
        freeze.undo()
    await_true(lambda: site.troubles() == set(), "the engine goes on and is still called stalled")


def test_an_engine_that_died_is_named(site: Site) -> None:
    place = site.places[1]
    place.engine.kill()
    try:
        site.assert_named("engine_down", place.full_name, f"waits for its engine at {place.engine.url}")
    finally:
        place.engine = start_engine(place.directory, misbehave=SLOW, name=place.name, port=place.engine.port)


@pytest.mark.parametrize(("seconds", "words"), [(3.0, "the volume is slow"), (40.0, "the volume stands still")])
def test_a_slow_volume_is_named(site: Site, seconds: float, words: str) -> None:
    place = site.places[0]
    SlowFsync(place.control, seconds).apply()
    try:
        site.assert_named("volume_slow", place.full_name, words)
    finally:
        place.control.unlink()
        if seconds > BAR:
            place.kill()


def test_the_screen_shows_it_too_and_does_not_flicker(site: Site) -> None:
    victim = site.places[0]
    with on_terminal("status", "--watch", site.root, env=site.env) as terminal:
        terminal.read_until(victim.name)
        victim.kill()
        began = time.monotonic()
        terminal.read_until("is gone")
        assert time.monotonic() - began < BAR
    assert b"\x1b[2J" not in terminal.seen, "the screen is never wiped"
    assert terminal.seen.count(b"\x1b[?1049h") == terminal.seen.count(b"\x1b[?1049l") == 1
    after = terminal.seen.partition(b"\x1b[?1049l")[2].decode()
    assert "is gone" in after, "the last state stays to be read"


def test_a_pipe_gets_lines(site: Site) -> None:
    process = subprocess.Popen(
        command("status", "--watch", site.root), stdout=subprocess.PIPE, text=True, env={**environment(), **site.env}
    )
    try:
        assert process.stdout is not None
        assert "% of 20,000 samples" in process.stdout.readline()
        site.places[1].kill()
        while "is gone" not in process.stdout.readline():
            assert process.poll() is None
    finally:
        process.kill()
        process.wait()


class Terminal:
    """What a process has written to a terminal of 100 columns."""

    def __init__(self, master: int, process: subprocess.Popen[bytes]) -> None:
        self.master, self.process, self.seen = master, process, b""

    def read_until(self, words: str) -> None:
        start, deadline = len(self.seen), time.monotonic() + PATIENCE
        while words.encode() not in self.seen[start:]:
            assert time.monotonic() < deadline, f"{words!r} does not appear: {self.seen[-2000:]!r}"
            assert self._read(0.2), f"it ended without {words!r}: {self.seen[-2000:]!r}"

    def rest(self) -> None:
        while self._read(5.0):
            pass

    def _read(self, seconds: float) -> bool:
        """False at the end."""
        if not select.select([self.master], [], [], seconds)[0]:
            return self.process.poll() is None
        try:
            self.seen += os.read(self.master, 1 << 16)
        except OSError:
            return False
        return True


@contextlib.contextmanager
def on_terminal(*arguments: str | Path, env: dict[str, str]) -> Iterator[Terminal]:
    """A command on a terminal of its own; interrupted at the end, as by Ctrl-C."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        command(*arguments), stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        env={**environment(), **env, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"},
    )  # fmt: skip
    os.close(slave)
    terminal = Terminal(master, process)
    try:
        yield terminal
        process.send_signal(signal.SIGINT)
        terminal.rest()
    finally:
        process.kill()
        process.wait()
        os.close(master)
