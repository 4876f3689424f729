"""The reaper against a real Redis: what was lost is sent again, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from celery import Celery

from hsqueue.ledger.keys import REAPER
from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.rebuild import reconcile
from hsqueue.queue.producer import enqueue
from hsqueue.queue.reaper import Reaper, reap_run
from tests.support.ledger import expire, granted
from tests.support.messages import take_all, waiting
from tests.support.redis import RedisServer
from tests.support.volume import Volume, make_volume
from tests.support.waiting import await_true

PATIENCE = 20.0
GRACE = 3600.0


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    """Six samples in three shards."""
    return make_volume(tmp_path / "run", (5, 9, 5, 3, 12, 7), 2)


@pytest.fixture
def reaper(app: Celery, redis: RedisServer) -> Callable[[], Reaper]:
    return lambda: Reaper(app, redis.client(), redis.url, GRACE, interval=0.05)


def reap(one: Reaper) -> int:
    return one.reap(one.look())


def shards(redis: RedisServer, volume: Volume) -> list[int]:
    return [message.shard for message in waiting(redis, volume.info)]


def age(known: Ledger, *numbers: int) -> None:
    """As if the messages of these shards had been sent a grace and a bit ago."""
    for shard in numbers:
        known.client.zincrby(known.keys.queued, -GRACE * 1000 - 1, str(shard))


# --- one round over one run -----------------------------------------------------------------------------------


def test_a_shard_is_sent_again_once_its_lease_has_expired_and_not_before(
    app: Celery, known: Ledger, redis: RedisServer, volume: Volume
) -> None:
    enqueue(app, known, volume.info)
    take_all(redis, volume.info)
    granted(known, 0)
    granted(known, 1)
    granted(known, 2)
    assert reap_run(app, known, volume.info, GRACE) == 0
    expire(known, 1)
    assert reap_run(app, known, volume.info, GRACE) == 1
    assert reap_run(app, known, volume.info, GRACE) == 0
    assert [m.id for m in waiting(redis, volume.info)] == ["r1.1.a1"]


def test_a_shard_given_back_is_sent_again_at_once(
    app: Celery, known: Ledger, redis: RedisServer, volume: Volume
) -> None:
    enqueue(app, known, volume.info)
    take_all(redis, volume.info)
    known.release(granted(known, 2))
    assert reap_run(app, known, volume.info, GRACE) == 1
    assert shards(redis, volume) == [2]


def test_a_message_lost_without_a_trace_is_sent_again_after_the_grace_and_not_before(
    app: Celery, known: Ledger, redis: RedisServer, volume: Volume
) -> None:
    enqueue(app, known, volume.info)
    take_all(redis, volume.info)
    assert reap_run(app, known, volume.info, GRACE) == 0
    age(known, 0, 2)
    assert reap_run(app, known, volume.info, GRACE) == 2
    assert shards(redis, volume) == [0, 2]


def test_an_old_message_is_not_sent_again_while_the_queue_is_not_empty(
    app: Celery, known: Ledger, redis: RedisServer, volume: Volume
) -> None:
    enqueue(app, known, volume.info)
    age(known, 0, 1, 2)
    assert reap_run(app, known, volume.info, GRACE) == 0
    assert shards(redis, volume) == [0, 1, 2]
    take_all(redis, volume.info)
    assert reap_run(app, known, volume.info, GRACE) == 3


def test_an_ended_shard_is_never_sent_again(app: Celery, known: Ledger, redis: RedisServer, volume: Volume) -> None:
    enqueue(app, known, volume.info)
    take_all(redis, volume.info)
    known.finish(granted(known, 0))
    age(known, 1, 2)
    reap_run(app, known, volume.info, GRACE)
    assert shards(redis, volume) == [1, 2]


# --- the thread -------------------------------------------------------------------------------------------------


def test_every_run_that_redis_knows_is_reaped(
    reaper: Callable[[], Reaper], known: Ledger, redis: RedisServer, volume: Volume, tmp_path: Path
) -> None:
    other = make_volume(tmp_path / "other", (4, 4), 1, run="r2")
    reconcile(redis.client(), redis.url, other.layout, other.info)
    assert reap(reaper()) == 5


def test_a_dropped_run_is_not_reaped_and_not_rebuilt(
    reaper: Callable[[], Reaper], known: Ledger, redis: RedisServer, volume: Volume
) -> None:
    one = reaper()
    one.remember(volume.info, volume.layout)
    known.drop()
    assert reap(one) == 0
    assert known.info() is None


def test_a_run_that_redis_lost_is_rebuilt_and_sent(
    reaper: Callable[[], Reaper], known: Ledger, redis: RedisServer, volume: Volume
) -> None:
    volume.finish_shard(1)
    one = reaper()
    one.remember(volume.info, volume.layout)
    redis.client().flushall()
    reap(one)
    reap(one)
    assert known.counts(6).done == 2
    assert shards(redis, volume) == [0, 2]


def test_a_reaper_without_the_lease_rebuilds_what_it_knew(
    reaper: Callable[[], Reaper], known: Ledger, redis: RedisServer, volume: Volume
) -> None:
    """The one that has the lease after the loss may never have seen the run."""
    client, one, rounds = redis.client(), reaper(), threading.Semaphore(0)
    client.set(REAPER, "somebody else")
    look = one.look

    def counted() -> dict[str, Path]:
        found = look()
        rounds.release()
        return found

    one.look = counted  # type: ignore[method-assign]
    one.start()
    assert rounds.acquire(timeout=PATIENCE)
    client.flushall()
    client.set(REAPER, "somebody else")
    await_true(lambda: known.info() is not None, "it does not happen")
    one.stop()
    assert client.get(REAPER) == "somebody else"


def test_a_run_whose_volume_is_away_keeps_no_other_from_being_reaped(
    reaper: Callable[[], Reaper], known: Ledger, redis: RedisServer, volume: Volume, tmp_path: Path
) -> None:
    gone = make_volume(tmp_path / "gone", (4, 4), 1, run="r0")
    one = reaper()
    one.remember(gone.info, gone.layout)
    gone.layout.root.rename(tmp_path / "elsewhere")
    assert reap(one) == 3
    assert shards(redis, volume) == [0, 1, 2]
    assert not gone.layout.root.exists()


def test_one_reaper_holds_the_lease_at_a_time(
    reaper: Callable[[], Reaper], redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    active: set[str] = set()
    rounds: dict[str, int] = {}
    overlaps: list[set[str]] = []
    lock = threading.Lock()

    def reap(self: Reaper, runs: object) -> int:
        with lock:
            active.add(self.token)
            rounds[self.token] = rounds.get(self.token, 0) + 1
            overlaps.append(set(active))
        with lock:
            active.discard(self.token)
        return 0

    monkeypatch.setattr(Reaper, "reap", reap)
    reapers = [reaper() for _ in range(4)]
    for one in reapers:
        one.start()
    await_true(lambda: sum(rounds.values()) >= 8, "it does not happen")
    holder = redis.client().get(REAPER)
    assert set(rounds) == {holder}
    next(one for one in reapers if one.token == holder).stop()
    await_true(lambda: len(rounds) == 2, "it does not happen")
    for one in reapers:
        one.stop()
        one.join(PATIENCE)
    assert all(len(seen) == 1 for seen in overlaps)


def test_a_reaper_outlives_a_redis_that_was_away(
    reaper: Callable[[], Reaper], known: Ledger, redis: RedisServer, volume: Volume
) -> None:
    one = reaper()
    one.remember(volume.info, volume.layout)
    redis.kill()
    one.start()
    redis.start()
    await_true(lambda: sorted(shards(redis, volume)) == [0, 1, 2], "it does not happen")
    assert one.is_alive()
    one.stop()
    one.join(PATIENCE)
