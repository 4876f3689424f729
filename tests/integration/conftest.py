"""A Redis for a module of tests, empty before each of them, and the model that states are held against."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from hsqueue.ledger.ledger import Ledger
from tests.support.ledger import INFO
from tests.support.prompts import Reference
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


@pytest.fixture(scope="module")
def reference() -> Iterator[Reference]:
    """With one thread, as the engine has: matrix products of several threads may sum in another order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Reference()
    torch.set_num_threads(threads)
