"""A Redis for a module of tests, empty before each of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hsqueue.ledger.ledger import Ledger
from tests.support.ledger import INFO
from tests.support.redis import RedisServer, redis_server


@pytest.fixture(scope="module")
def _redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis(_redis: RedisServer) -> RedisServer:
    """A running Redis that holds nothing."""
    client = _redis.client()
    client.flushall()
    client.close()
    return _redis


@pytest.fixture
def ledger(redis: RedisServer) -> Ledger:
    """The ledger of a run of five shards with four samples each, in its third epoch."""
    made = Ledger(redis.client(), redis.url, INFO.run)
    made.create(INFO, (), (), ())
    return made
