"""What a lost shard costs Redis, by its own count of commands: the same however many others are open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from hsqueue.contracts.fingerprint import RunInfo
from hsqueue.ledger.keys import REAPER
from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.records import LedgerInfo
from hsqueue.queue.app import make_app, queue_key
from hsqueue.queue.producer import enqueue
from hsqueue.queue.reaper import Reaper, reap_run
from tests.support.ledger import expire, granted
from tests.support.redis import RedisServer
from tests.support.volume import make_volume

GRACE = 3600.0
OF_A_CONNECTION = {"ping", "hello", "select", "client", "info", "config"}


@pytest.fixture
def app(redis: RedisServer) -> Iterator[Celery]:
    with make_app(redis.url) as made:
        yield made


def queued_run(redis: RedisServer, tmp_path: Path, shards: int) -> tuple[Ledger, RunInfo]:
    """A run of one sample a shard, each of which counts as queued, with one message in the queue."""
    info = replace(
        make_volume(tmp_path / f"run-{shards}", (5,), 1).info, run=f"r{shards}", samples=shards, shards=shards
    )
    ledger = Ledger(redis.client(), redis.url, info.run)
    ledger.create(LedgerInfo.of(info, "/run", 1), (), (), ())
    ledger.claim(range(shards), None)
    ledger.client.rpush(queue_key(info.fingerprint.target.queue), "{}")
    return ledger, info


def commands(ledger: Ledger) -> dict[str, int]:
    """Calls of each command since the last reset, those within scripts as well."""
    found: dict[str, Any] = ledger.client.info("commandstats")
    calls = {name.removeprefix("cmdstat_").split("|")[0]: int(row["calls"]) for name, row in found.items()}
    return {name: count for name, count in calls.items() if name not in OF_A_CONNECTION}


@pytest.mark.parametrize("loss", ["given back", "expired"])
def test_a_lost_shard_costs_the_same_commands_however_many_are_open(
    app: Celery, redis: RedisServer, tmp_path: Path, loss: str
) -> None:
    counted = []
    for shards in (100, 100_000):
        ledger, info = queued_run(redis, tmp_path, shards)
        for shard in (shards - 1, shards // 2):
            lease = granted(ledger, shard)
            ledger.release(lease) if loss == "given back" else expire(ledger, shard)
            # The first round is for what is done once a connection.
            ledger.client.config_resetstat()
            assert reap_run(app, ledger, info, GRACE) == 1
        counted.append(commands(ledger))
    assert counted[0] == counted[1]
    assert sum(counted[1].values()) < 40


def test_enqueuing_a_run_that_is_queued_asks_for_no_shard(app: Celery, redis: RedisServer, tmp_path: Path) -> None:
    ledger, info = queued_run(redis, tmp_path, 100_000)
    ledger.client.config_resetstat()
    assert enqueue(app, ledger, info) == 0
    assert sum(commands(ledger).values()) < 10


def test_all_overdue_shards_are_sent_in_one_round_and_none_twice(
    app: Celery, redis: RedisServer, tmp_path: Path
) -> None:
    """More than one look lists: the first that is sent makes the queue no longer empty, which ends the next round."""
    shards = 1200
    ledger, info = queued_run(redis, tmp_path, shards)
    queue = queue_key(info.fingerprint.target.queue)
    ledger.client.delete(queue)
    ledger.client.zadd(ledger.keys.queued, {str(shard): 1 for shard in range(shards)})
    assert reap_run(app, ledger, info, GRACE) == shards == ledger.client.llen(queue)


def test_a_reaper_without_the_lease_asks_two_things_a_round(app: Celery, redis: RedisServer) -> None:
    client = redis.client()
    client.set(REAPER, "somebody else")
    one = Reaper(app, client, redis.url, GRACE)
    client.config_resetstat()
    one.look()
    assert not one._holds_lease()
    found: dict[str, Any] = client.info("commandstats")
    calls = {name: int(row["calls"]) for name, row in found.items() if "|" not in name}
    assert calls == {"cmdstat_hgetall": 1, "cmdstat_get": 1}
