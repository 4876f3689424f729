"""A lock that outlives no holder by long, and that a slow holder keeps."""

from __future__ import annotations

from pathlib import Path

from hsqueue.ledger.lock import try_lock
from tests.support.redis import RedisServer, redis_server
from tests.support.waiting import await_true, comes_true

KEY = "hsq:{r1}:some-lock"


def test_one_has_it_at_a_time_and_it_is_free_afterwards(redis: RedisServer) -> None:
    client, other = redis.client(), redis.client()
    with try_lock(client, redis.url, KEY) as mine, try_lock(other, redis.url, KEY) as others:
        assert (mine, others) == (True, False)
    assert not client.exists(KEY)


def test_a_slow_holder_keeps_it(redis: RedisServer) -> None:
    client = redis.client()
    with try_lock(client, redis.url, KEY, ttl=0.3) as mine:
        assert mine
        assert not comes_true(lambda: not client.exists(KEY), seconds=1.0)


def test_a_dead_holders_lock_ends_by_itself(redis: RedisServer) -> None:
    client = redis.client()
    # As it stands when its holder was killed: with nobody to renew it.
    client.lock(KEY, timeout=0.5, thread_local=False).acquire(blocking=False)

    def is_free() -> bool:
        with try_lock(redis.client(), redis.url, KEY) as mine:
            return mine

    assert not is_free()
    await_true(is_free, "the dead holder's lock still stands")


def test_another_ones_lock_is_left_alone(redis: RedisServer) -> None:
    client = redis.client()
    with try_lock(client, redis.url, KEY):
        client.set(KEY, "another")
    assert client.get(KEY) == "another"


def test_a_redis_that_died_meanwhile_is_no_error_of_the_work_done(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server, try_lock(server.client(), server.url, KEY) as mine:
        assert mine
        server.kill()
