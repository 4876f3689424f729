"""What the pages ask of the ledger, held against it; a damaged run hides no other."""

from __future__ import annotations

import pytest

from hsqueue.contracts.errors import LedgerDamaged, RedisUnreachable, RunNotFound
from hsqueue.contracts.sample import Ending, GivenUp
from hsqueue.ledger.keys import RUNS, RunKeys
from hsqueue.ledger.ledger import Ledger
from hsqueue.monitoring.flower.source import SHARED_SECONDS, Source
from tests.support.ledger import INFO, done, granted
from tests.support.redis import RedisServer
from tests.support.seeded import seed_run, seed_worker


@pytest.fixture
def source(redis: RedisServer) -> Source:
    return Source(redis.url)


def test_a_shard_is_told_with_its_worker_and_its_failures(source: Source, ledger: Ledger) -> None:
    lease = granted(ledger, 1, "gpu0@here:/dumps")
    ledger.commit(lease, done(4, 5), [GivenUp(7, Ending.FAILED, 5, "DumpMissing", "no dump")])
    found = source.shard(INFO.run, 1)
    (failure,) = found.pop("failures")
    assert found == {
        "shard": 1, "state": "worked at", "first": 4, "samples": 4, "done": 2, "given_up": 1, "worker": "gpu0@here",
        "leases": 0,
    }  # fmt: skip
    assert (failure["index"], failure["error"], failure["detail"]) == (7, "DumpMissing", "no dump")


def test_the_states_of_shards(source: Source, ledger: Ledger) -> None:
    ledger.commit(granted(ledger, 0), done(0, 1, 2, 3))
    ledger.finish(granted_again(ledger, 0))
    lease = granted(ledger, 1)
    ledger.commit(lease, done(4, 5, 6), [GivenUp(7, Ending.SKIPPED, 1, "SampleTooLong", "")])
    ledger.finish(lease)
    granted(ledger, 2)
    ledger.claim([3], None)
    assert source.shards(INFO.run) == {"states": "efwq."}


def granted_again(ledger: Ledger, shard: int):  # type: ignore[no-untyped-def]
    ledger.client.delete(ledger.keys.leases)
    return granted(ledger, shard)


@pytest.mark.parametrize("shard", [5, 10**11])
def test_a_shard_that_the_run_does_not_have(source: Source, ledger: Ledger, shard: int) -> None:
    with pytest.raises(RunNotFound, match="no shard"):
        source.shard(ledger.run, shard)


def test_an_unknown_run(source: Source) -> None:
    for ask in (source.run, source.shards):
        with pytest.raises(RunNotFound, match="knows no run nobody"):
            ask("nobody")


def test_a_run_of_an_impossible_name_is_not_shown(source: Source, redis: RedisServer) -> None:
    seed_run(redis, "r1", 5)
    redis.client().hset(RUNS, "<script>", "/volume")
    redis.client().copy(RunKeys("r1").info, RunKeys("<script>").info)
    assert [run["run"] for run in source.overview()["runs"]] == ["r1"]


@pytest.mark.parametrize("key", ["leases", "holders", "given_up", "troubled", "newest_failed"])
@pytest.mark.parametrize("kind", ["list", "hash"])
def test_a_damaged_run_hides_no_other(source: Source, redis: RedisServer, key: str, kind: str) -> None:
    for run in ("r1", "r2"):
        seed_run(redis, run, 50, failing=0.5)
    seed_worker(redis, "gpu0@seeded")
    client, name = redis.client(), getattr(RunKeys("r1"), key)
    client.delete(name)
    if kind == "list":
        client.rpush(name, "x")
    else:
        client.hset(name, mapping={"x": "y", "1": "{"})
    found = source.overview()
    assert {run["run"] for run in found["runs"]} == {"r1", "r2"}
    assert "r2" in {failure["run"] for failure in found["failures"]}
    assert [one["name"] for one in found["workers"]] == ["gpu0@seeded"]
    told = [one for one in found["troubles"] if one["kind"] == "ledger_damaged"]
    assert [one["runs"] for one in told] in ([["r1"]], [])
    if told:
        with pytest.raises(LedgerDamaged):
            source.run("r1")


def test_holders_that_are_none_are_told(source: Source, redis: RedisServer) -> None:
    seed_run(redis, "r1", 50)
    redis.client().hset(RunKeys("r1").holders, "x", "y")
    assert source.overview()["troubles"][0]["kind"] == "ledger_damaged"


def test_a_redis_that_is_away_is_said_at_once(source: Source, redis: RedisServer) -> None:
    seed_run(redis, "r1", 50)
    source.client.connection_pool.disconnect()
    redis.kill()
    try:
        with pytest.raises(RedisUnreachable):
            source.overview()
    finally:
        redis.start()


def test_many_who_look_ask_redis_once(source: Source, redis: RedisServer) -> None:
    assert SHARED_SECONDS < 2, "the pages ask every two seconds"
    first = source.overview()
    assert source.overview() is first
