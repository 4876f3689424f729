"""The producer against a real Redis: small messages, each shard sent once, nothing claimed that was not sent."""

from __future__ import annotations

import base64
import json
import multiprocessing
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from celery import Celery

from hsqueue.contracts.errors import RedisUnreachable
from hsqueue.contracts.message import TASK_NAME, ShardMessage
from hsqueue.ledger.connect import connect
from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.rebuild import reconcile
from hsqueue.planning.commit import new_run_id
from hsqueue.planning.plan import load_run
from hsqueue.queue.app import make_app
from hsqueue.queue.producer import CLAIM, enqueue, send_shard, send_shards
from hsqueue.store.layout import RunLayout
from tests.support.ledger import granted
from tests.support.messages import take_all, waiting
from tests.support.redis import RedisServer, free_port, redis_server
from tests.support.volume import Volume, make_fingerprint, make_volume

LONGEST_RUN = "r" * 32
MESSAGE_BYTES = 1000


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    """Nine samples in five shards, under the longest name that a run can have."""
    return make_volume(tmp_path / "run", (5, 9, 5, 3, 12, 7, 4, 6, 8), 2, run=LONGEST_RUN)


def shards(redis: RedisServer, volume: Volume) -> list[int]:
    return [message.shard for message in waiting(redis, volume.info)]


# --- what is sent -------------------------------------------------------------------------------------------


def test_one_message_goes_out_for_each_shard_in_order(
    app: Celery, known: Ledger, redis: RedisServer, volume: Volume
) -> None:
    assert enqueue(app, known, volume.info) == 5
    assert shards(redis, volume) == [0, 1, 2, 3, 4]


def test_a_message_is_smaller_than_a_kilobyte(app: Celery, redis: RedisServer, volume: Volume) -> None:
    """The last shard of five million samples, sent for the hundredth time."""
    info = replace(volume.info, run=new_run_id(), samples=5_000_000, shards=10_000, fingerprint=make_fingerprint(512))
    send_shard(app, info, 9765, 100)
    (message,) = waiting(redis, info)
    print(f"a message is {len(message.raw)} bytes")
    assert len(message.raw) < MESSAGE_BYTES


def test_a_message_holds_names_and_numbers_and_no_word_of_a_prompt(
    app: Celery, known: Ledger, redis: RedisServer, volume: Volume
) -> None:
    enqueue(app, known, volume.info)
    for message in waiting(redis, volume.info):
        assert ShardMessage.from_kwargs(message.kwargs).run == LONGEST_RUN
        assert message.kwargs.keys() == {"run", "shard", "n"}
        body = base64.b64decode(json.loads(message.raw)["body"])
        for text in (message.raw, body):
            assert not any(sample.id.encode() in text for sample in volume.samples)
            assert str(volume.layout.root).encode() not in text
            assert redis.password.encode() not in text


def test_a_message_says_how_many_samples_its_shard_has(
    app: Celery, known: Ledger, redis: RedisServer, volume: Volume
) -> None:
    enqueue(app, known, volume.info)
    assert [message.kwargs["n"] for message in waiting(redis, volume.info)] == [2, 2, 2, 2, 1]


def test_a_task_is_named_after_run_shard_and_leases_so_far(
    app: Celery, known: Ledger, redis: RedisServer, volume: Volume
) -> None:
    known.release(granted(known, 1))
    send_shards(app, known, volume.info, [0, 1], None)
    assert [message.id for message in waiting(redis, volume.info)] == [f"{LONGEST_RUN}.0.a0", f"{LONGEST_RUN}.1.a1"]
    assert {json.loads(m.raw)["headers"]["task"] for m in waiting(redis, volume.info)} == {TASK_NAME}


def test_ended_and_leased_shards_are_not_sent(app: Celery, known: Ledger, redis: RedisServer, volume: Volume) -> None:
    known.finish(granted(known, 0))
    granted(known, 3)
    assert enqueue(app, known, volume.info) == 3
    assert shards(redis, volume) == [1, 2, 4]


def test_nothing_of_ours_lies_outside_the_prefix(
    app: Celery, known: Ledger, redis: RedisServer, volume: Volume
) -> None:
    """So that a Redis can be shared with others."""
    enqueue(app, known, volume.info)
    assert all(key.startswith(("hsq:", "hsq.")) for key in redis.client().keys("*"))


# --- who sends ----------------------------------------------------------------------------------------------


def test_sending_twice_sends_each_shard_once(app: Celery, known: Ledger, redis: RedisServer, volume: Volume) -> None:
    assert [enqueue(app, known, volume.info), enqueue(app, known, volume.info)] == [5, 0]
    assert shards(redis, volume) == [0, 1, 2, 3, 4]


def test_a_worked_off_message_is_not_sent_again_while_its_shard_is_leased(
    app: Celery, known: Ledger, redis: RedisServer, volume: Volume
) -> None:
    enqueue(app, known, volume.info)
    take_all(redis, volume.info)
    lease = granted(known, 2)
    assert enqueue(app, known, volume.info) == 0
    known.release(lease)
    assert enqueue(app, known, volume.info) == 1
    assert shards(redis, volume) == [2]


def produce(arguments: tuple[str, Path]) -> int:
    url, root = arguments
    info = load_run(root)
    with make_app(url) as app:
        ledger = reconcile(connect(url), url, RunLayout(root), info).ledger
        return enqueue(app, ledger, info)


def test_producers_at_once_send_each_shard_once(redis: RedisServer, tmp_path: Path) -> None:
    many = make_volume(tmp_path / "many", [3] * (CLAIM + 50), 1)
    with ProcessPoolExecutor(3, multiprocessing.get_context("spawn")) as pool:
        sent = list(pool.map(produce, [(redis.url, many.layout.root)] * 3))
    assert sum(sent) == CLAIM + 50
    assert Counter(shards(redis, many)) == dict.fromkeys(range(CLAIM + 50), 1)


# --- what cannot be sent --------------------------------------------------------------------------------------


def assert_refused(app: Celery, known: Ledger, volume: Volume) -> None:
    with pytest.raises(RedisUnreachable) as caught:
        enqueue(app, known, volume.info)
    assert "\n" not in str(caught.value)


def test_a_broker_that_is_down_is_named_and_claims_nothing(known: Ledger, redis: RedisServer, volume: Volume) -> None:
    with make_app(f"redis://:pw@127.0.0.1:{free_port()}/0") as app:
        assert_refused(app, known, volume)
    assert known.client.zcard(known.keys.queued) == 0
    with make_app(redis.url) as app:
        assert enqueue(app, known, volume.info) == 5


def test_a_broker_with_another_password_is_named_and_claims_nothing(
    known: Ledger, redis: RedisServer, volume: Volume
) -> None:
    with make_app(f"redis://:wrong@127.0.0.1:{redis.port}/0") as app:
        assert_refused(app, known, volume)
    assert known.client.zcard(known.keys.queued) == 0


def test_a_broker_that_is_full_is_named_and_claims_nothing(known: Ledger, volume: Volume, tmp_path: Path) -> None:
    with redis_server(tmp_path / "full", "maxmemory 1") as full, make_app(full.url) as app:
        assert_refused(app, known, volume)
    assert known.client.zcard(known.keys.queued) == 0


def test_a_redis_that_is_down_is_named(tmp_path: Path, volume: Volume) -> None:
    with redis_server(tmp_path / "redis") as server, make_app(server.url) as app:
        ledger = reconcile(server.client(), server.url, volume.layout, volume.info).ledger
        server.kill()
        assert_refused(app, ledger, volume)
        server.start()
        assert enqueue(app, ledger, volume.info) == 5
