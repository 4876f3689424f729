"""A waiting worker begins at once, however many shards are queued behind the first."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

from hsqueue.ledger.rebuild import reconcile
from hsqueue.planning.plan import load_run
from hsqueue.queue.app import make_app
from hsqueue.queue.producer import enqueue
from hsqueue.store.layout import RunLayout
from tests.support.cli import hsqueue, start
from tests.support.engine import engine
from tests.support.prompts import token_prompts
from tests.support.redis import RedisServer
from tests.support.waiting import await_true

SHARDS = 1000
BAR = 1.0


def test_the_first_request_follows_the_first_message_within_a_second(redis: RedisServer, tmp_path: Path) -> None:
    prompts = token_prompts(tmp_path / "prompts.jsonl", [8] * SHARDS)
    root, log = tmp_path / "run", tmp_path / "worker.log"
    with engine(tmp_path) as server:
        planned = hsqueue("plan", prompts, "--out", root, "--dump-dir", server.dump_dir, "--shard-size", "1")
        assert planned.status == 0, planned.text
        worker = start(
            "worker", "--engine", server.url, "--dump-dir", server.dump_dir, log=log,
            env={"HSQ_REDIS_URL": redis.url},
        )  # fmt: skip
        await_true(lambda: "ready." in log.read_text(), "the worker does not come up")
        info, layout = load_run(root), RunLayout(root)
        ledger = reconcile(redis.client(), redis.url, layout, info).ledger
        before = len(server.asked())
        first: list[float] = []

        def watch() -> None:
            await_true(lambda: len(server.asked()) > before, "no request comes", pause=0.005)
            first.append(time.monotonic())

        watching = threading.Thread(target=watch, daemon=True)
        watching.start()
        began = time.monotonic()
        enqueue(make_app(redis.url), ledger, info)
        watching.join(30)
        worker.send_signal(signal.SIGTERM)
        worker.wait(60)
    assert first, log.read_text()
    print(f"{first[0] - began:.3f} s from the first message of {SHARDS} to the first request")
    assert first[0] - began < BAR
