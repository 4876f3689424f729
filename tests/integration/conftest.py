"""A Redis for a module of tests, empty before each of them, and the model that states are held against."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from celery import Celery

from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.rebuild import reconcile
from hsqueue.queue.app import make_app
from tests.support.ledger import INFO
from tests.support.prompts import Reference
from tests.support.redis import RedisServer, redis_server
from tests.support.volume import Volume


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


@pytest.fixture
def known(redis: RedisServer, volume: Volume) -> Ledger:
    """The ledger of the run that the module's own fixture `volume` makes."""
    return reconcile(redis.client(), redis.url, volume.layout, volume.info).ledger


@pytest.fixture
def app(redis: RedisServer) -> Iterator[Celery]:
    with make_app(redis.url) as made:
        yield made


@pytest.fixture(scope="module")
def reference() -> Iterator[Reference]:
    """With one thread, as the engine has: matrix products of several threads may sum in another order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Reference()
    torch.set_num_threads(threads)
