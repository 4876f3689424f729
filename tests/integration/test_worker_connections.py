"""How many connections a worker holds: with hundreds of workers they are what Redis runs out of first."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from typing import Any, cast

import psutil

from hsqueue.ledger.keys import WORKERS
from tests.support.asking import await_true
from tests.support.cli import hsqueue, start
from tests.support.engine import engine
from tests.support.prompts import token_prompts
from tests.support.redis import RedisServer

WAITING = {"hsqueue": 5, "hsqueue-ledger": 2}
"""Celery's: messages, their acknowledgement, remote control and its answers, events. Ours: heartbeat, reaper."""
OF_A_CHILD = {"hsqueue": 1, "hsqueue-ledger": 2}
"""Events; the shard and its lease's renewal."""
CHILDREN, SHARDS = 2, 4


def holders(redis: RedisServer, process: psutil.Process) -> Counter[int]:
    """For each connection, by its port here, how many processes of the worker hold it."""
    return Counter(
        held.laddr.port
        for one in (process, *process.children(recursive=True))
        for held in one.net_connections("tcp")
        if held.raddr and held.raddr.port == redis.port
    )


def connections(redis: RedisServer) -> Counter[str]:
    """By the name that they give themselves; the one that asks has none."""
    client = redis.client()
    found = cast(list[dict[str, Any]], client.client_list())
    client.close()
    return Counter(row["name"] for row in found if row["cmd"] != "client|list")


def test_a_worker_holds_no_connection_that_nobody_uses(redis: RedisServer, tmp_path: Path) -> None:
    root, log = tmp_path / "run", tmp_path / "worker.log"
    env = {"HSQ_REDIS_URL": redis.url}
    with engine(tmp_path) as server:
        worker = start("worker", "--engine", server.url, "--dump-dir", server.dump_dir, log=log, env=env)
        try:
            await_true(lambda: redis.client().hlen(WORKERS) == 1, "the worker gives no sign of life")
            waiting = connections(redis)
            prompts = token_prompts(tmp_path / "prompts.jsonl", [8] * SHARDS)
            where = ("--out", root, "--dump-dir", server.dump_dir, "--shard-size", "1")
            assert hsqueue("plan", prompts, *where).status == 0
            assert hsqueue("enqueue", root, env=env).status == 0
            await_true(lambda: log.read_text().count("succeeded in") == SHARDS, "the shards do not end")
            working, shared = connections(redis), holders(redis, psutil.Process(worker.pid))
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(60)
    assert set(shared.values()) == {1}, shared
    for name, most in WAITING.items():
        assert 0 < waiting[name] <= most, waiting
        assert 0 < working[name] <= most + CHILDREN * OF_A_CHILD[name], working
