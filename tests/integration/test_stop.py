"""A worker that is asked to end: it gives its shard back at once, and another goes on from there."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path

from tests.support.cli import hsqueue, start
from tests.support.engine import Engine, engine
from tests.support.prompts import published, token_prompts
from tests.support.redis import redis_server
from tests.support.waiting import await_true, lives

COUNT = 120


def worker(server: Engine, log: Path, url: str) -> subprocess.Popen[bytes]:
    return start(
        "worker", "--engine", server.url, "--dump-dir", server.dump_dir, "--max-in-flight", "4", log=log,
        env={"HSQ_REDIS_URL": url, "HSQ_LEASE_TTL": "60"},
    )  # fmt: skip


def test_a_busy_worker_ends_in_seconds_and_its_shard_goes_on_elsewhere(tmp_path: Path) -> None:
    prompts = token_prompts(tmp_path / "prompts.jsonl", [20 + k % 40 for k in range(COUNT)])
    root, log, other = tmp_path / "run", tmp_path / "worker.log", tmp_path / "other.log"
    with redis_server(tmp_path) as redis, engine(tmp_path, misbehave={"slow": 0.4}) as server:
        assert hsqueue("plan", prompts, "--out", root, "--dump-dir", server.dump_dir).status == 0
        first = worker(server, log, redis.url)
        assert hsqueue("enqueue", root, env={"HSQ_REDIS_URL": redis.url}).status == 0
        await_true(lambda: len(published(root)) >= 10, "nothing is published", meanwhile=lives(first, log))
        began = time.monotonic()
        first.send_signal(signal.SIGTERM)
        first.wait(30)
        took = time.monotonic() - began
        text = log.read_text()
        assert re.search(r"\d+/120 done; stopped: the worker was asked to end", text), text
        second = worker(server, other, redis.url)
        await_true(lambda: len(published(root)) == COUNT, "it does not end", meanwhile=lives(second, other))
        second.send_signal(signal.SIGTERM)
        second.wait(30)
    print(f"a busy worker ended after {took:.1f} s")
    assert took < 15, "the work in hand takes a second"
