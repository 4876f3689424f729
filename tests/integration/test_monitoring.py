"""What the ledger says of runs and workers, read back from a real Redis."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from hsqueue.contracts.errors import LedgerDamaged
from hsqueue.contracts.sample import Ending, GivenUp, Published
from hsqueue.ledger.initial import NEWEST
from hsqueue.ledger.keys import SIGNS, WORKERS
from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.records import LedgerInfo
from hsqueue.ledger.signs import ask_for_signs, give_sign, read_signs, take_sign_back
from hsqueue.monitoring.failures import newest_failures
from hsqueue.monitoring.meters import run_meters, worker_meters_of_all
from hsqueue.monitoring.shards import shard_states
from hsqueue.monitoring.snapshot import Snapshot, by_redis, every_worker, overview
from tests.support.ledger import INFO, SHARDS, SIZE, done, granted, skipped
from tests.support.redis import RedisServer
from tests.support.views import sign
from tests.support.waiting import await_true


def snapshot(ledger: Ledger) -> Snapshot:
    found = by_redis(ledger)
    assert found is not None
    return found


def by_redis_clock(ledger: Ledger) -> int:
    """Milliseconds, as failures are ordered by."""
    seconds, microseconds = ledger.client.time()
    return int(seconds) * 1000 + int(microseconds) // 1000


def quickest(work: Callable[[], object], times: int = 7) -> float:
    """Seconds of the quickest of several, since the machine has other work."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return min(took)


# --- pace ----------------------------------------------------------------------------------------------------


def test_commits_make_the_pace(ledger: Ledger) -> None:
    assert snapshot(ledger).pace.began is None
    lease = granted(ledger)
    began = snapshot(ledger).pace.began
    assert began is not None
    ledger.commit(lease, done(0, 1))
    marks = ledger.client.hgetall(ledger.keys.pace)
    assert marks["tokens"] == "201"
    assert {value.split(" ")[1] for place, value in marks.items() if place.isdigit()} <= {"201", "100", "101"}
    ledger.commit(lease, done(0, 1))
    assert ledger.client.hgetall(ledger.keys.pace)["tokens"] == "201", "told twice, done once"
    ledger.client.hset(ledger.keys.pace, mapping={k: str(int(marks[k]) - 20_000) for k in ("began", "resumed")})
    ledger.client.hset(ledger.keys.pace, "worked", "20000")
    pace = snapshot(ledger).pace
    assert pace.recent == pytest.approx(201 / 20, rel=0.1)
    assert pace.overall == pytest.approx(201 / 20, rel=0.1)
    assert pace.seconds_left == pytest.approx((INFO.tokens - 201) / (201 / 20), rel=0.1)


def test_the_ring_keeps_ten_minutes_and_no_more(ledger: Ledger) -> None:
    lease = granted(ledger)
    bucket = ledger.client.time()[0] // 10
    ledger.client.hset(ledger.keys.pace, mapping={str(place): "1 999" for place in range(60)})
    ledger.commit(lease, done(0))
    ring = {k: v for k, v in ledger.client.hgetall(ledger.keys.pace).items() if k.isdigit()}
    assert len(ring) == 60
    (written,) = (value for value in ring.values() if value != "1 999")
    assert written in (f"{bucket} 100", f"{bucket + 1} 100")


def test_a_commit_after_a_long_pause_begins_anew(ledger: Ledger) -> None:
    lease = granted(ledger)
    ledger.commit(lease, done(0))
    marks = ledger.client.hgetall(ledger.keys.pace)
    hour = {name: str(int(marks[name]) - 3_600_000) for name in ("began", "resumed", "last")}
    ledger.client.hset(ledger.keys.pace, mapping=hour)
    worked = int(marks.get("worked", 0))
    ledger.commit(lease, done(1))
    after = ledger.client.hgetall(ledger.keys.pace)
    assert int(after.get("worked", 0)) == worked
    assert after["began"] == hour["began"]
    assert int(after["resumed"]) > int(hour["resumed"]) + 3_500_000


# --- failures and shards -------------------------------------------------------------------------------------


def failing(index: int) -> GivenUp:
    return GivenUp(index, Ending.FAILED, 5, "DumpMissing", f"of {index}")


def test_the_newest_failures_come_first_and_skips_after_them(ledger: Ledger) -> None:
    first = granted(ledger, 0)
    second = granted(ledger, 1)
    ledger.commit(first, [], [failing(0), skipped(1)])
    first_told = by_redis_clock(ledger)
    await_true(lambda: by_redis_clock(ledger) > first_told, "Redis' clock stands still", pause=0.0005)
    ledger.commit(second, [], [failing(4), skipped(5)])
    found = newest_failures(ledger, SIZE)
    assert [(f.sample.index, f.shard, str(f.sample.ending)) for f in found] == [
        (4, 1, "failed"), (0, 0, "failed"), (5, 1, "skipped"), (1, 0, "skipped"),
    ]  # fmt: skip
    assert found[0].sample == failing(4)
    assert abs(found[0].time - time.time()) < 60
    assert [f.sample.index for f in newest_failures(ledger, SIZE, 1)] == [4]


@pytest.mark.parametrize("back", ["forget", "done"])
def test_a_sample_that_is_pending_or_done_again_is_no_failure(ledger: Ledger, back: str) -> None:
    lease = granted(ledger, 0)
    ledger.commit(lease, [], [failing(0), failing(1), skipped(2)])
    assert list(ledger.troubled(SHARDS)) == [3]
    if back == "forget":
        ledger.forget(0, {0: 0, 2: 0})
    else:
        ledger.commit(lease, done(0, 2))
    assert [f.sample.index for f in newest_failures(ledger, SIZE)] == [1]
    assert ledger.client.zcard(ledger.keys.newest_skipped) == 0
    assert list(ledger.troubled(SHARDS)) == [1]


def test_the_lists_do_not_grow_without_end(redis: RedisServer) -> None:
    ledger = Ledger(redis.client(), redis.url, "r2")
    info = replace(INFO, run="r2", samples=1000, shards=2, shard_size=500)
    ledger.create(info, (), (), ())
    lease = granted(ledger, 0)
    for first in range(0, 500, 50):
        ledger.commit(lease, [], [failing(index) for index in range(first, first + 50)])
    assert ledger.client.zcard(ledger.keys.newest_failed) == NEWEST
    found = newest_failures(ledger, 500)
    assert len(found) == NEWEST
    assert min(f.sample.index for f in found) >= 400
    ledger.create(info, (), [failing(index) for index in range(500)], ())
    rebuilt = newest_failures(ledger, 500)
    assert len(rebuilt) == NEWEST
    assert {f.time for f in rebuilt} == {0.0}
    assert list(ledger.troubled(2)) == [500, 0]
    assert snapshot(ledger).troubles[0].kind == "no_worker", "old failures are no news"


def test_each_shard_has_its_letter(ledger: Ledger) -> None:
    assert shard_states(ledger, SHARDS) == "....."
    ledger.claim([0, 1, 2], None)
    assert shard_states(ledger, SHARDS) == "qqq.."
    for shard, given_up in ((0, [skipped(0)]), (1, [])):
        lease = granted(ledger, shard)
        ledger.commit(lease, done(*(i for i in range(4 * shard, 4 * shard + 4) if i)), given_up)
        ledger.finish(lease)
    granted(ledger, 2)
    assert shard_states(ledger, SHARDS) == "few.."
    ledger.claim([3, 4], None)
    assert shard_states(ledger, SHARDS) == "fewqq"


def many_shards(redis: RedisServer, shards: int, run: str = "large") -> Ledger:
    """Of which the first third has ended, one in five of them with a failure."""
    ledger = Ledger(redis.client(), redis.url, run)
    size = 4
    ended = range(shards // 3)
    info = LedgerInfo(run, f"/v/{run}", shards * size, shards, size, "hsq.q", 1, shards * 100, 100, "m")
    ledger.create(info, (Published(i, 25, 1, "") for i in range(1)), (failing(size * s) for s in ended[::5]), ended)
    return ledger


@pytest.mark.parametrize("all_queued", [True, False], ids=["all queued", "some queued"])
def test_a_hundred_thousand_shards_are_drawn_in_a_tenth_of_a_second(redis: RedisServer, all_queued: bool) -> None:
    shards = 100_000
    ledger = many_shards(redis, shards)
    queued = ledger.claim(range(shards // 3, shards if all_queued else shards // 2), None)
    drawn = shard_states(ledger, shards)
    assert (drawn.count("e") + drawn.count("f"), drawn.count("f")) == (shards // 3, -(-(shards // 3) // 5))
    assert drawn.count("q") == len(queued)
    assert quickest(lambda: shard_states(ledger, shards)) < 0.1


# --- many runs -----------------------------------------------------------------------------------------------


def test_fifty_runs_are_told_within_a_tenth_of_a_second(redis: RedisServer) -> None:
    for number in range(50):
        ledger = many_shards(redis, 300, f"r{number:02d}")
        lease = granted(ledger, 200)
        ledger.commit(lease, done(*range(800, 804)))
        ledger.client.hset(ledger.keys.pace, mapping={str(place): "1 999" for place in range(60)})
    client = redis.client()
    runs = overview(client, redis.url)
    assert [summary.run for summary in runs] == [f"r{number:02d}" for number in range(50)]
    assert {(s.done, s.failed, s.total, s.shards_ended) for s in runs} == {(5, 20, 1200, 100)}
    assert quickest(lambda: overview(client, redis.url)) < 0.1


def test_an_overview_and_a_run_by_itself_say_the_same(ledger: Ledger) -> None:
    lease = granted(ledger)
    ledger.commit(lease, done(0), [failing(1)])
    (summary,) = overview(ledger.client, ledger.url)
    alone = snapshot(ledger)
    for name in ("run", "dir", "model", "queue", "total", "done", "failed", "pending", "tokens", "planned", "bytes"):
        assert getattr(summary, name) == getattr(alone, name), name


def test_a_dropped_run_and_one_of_nonsense_hide_no_other(ledger: Ledger, redis: RedisServer) -> None:
    many_shards(redis, 3, "dropped").drop()
    broken = many_shards(redis, 3, "broken")
    ledger.client.hset(broken.keys.info, "samples", "many")
    wrong = many_shards(redis, 3, "wrong")
    ledger.client.delete(wrong.keys.pace)
    ledger.client.set(wrong.keys.pace, "a string")
    assert [summary.run for summary in overview(ledger.client, ledger.url)] == [INFO.run]
    with pytest.raises(LedgerDamaged):
        by_redis(broken)


# --- workers -------------------------------------------------------------------------------------------------


def test_signs_are_taken_and_taken_back(ledger: Ledger) -> None:
    client = ledger.client
    give_sign(client, "a", sign().words)
    give_sign(client, "b", sign(queue=INFO.queue).words)
    assert [worker.name for worker in every_worker(client, ledger.url)] == ["a", "b"]
    assert [worker.name for worker in snapshot(ledger).workers] == ["b"], "the other serves another queue"
    take_sign_back(client, "b")
    assert (client.hkeys(WORKERS), client.zrange(SIGNS, 0, -1)) == (["a"], ["a"])


def test_who_was_silent_for_an_hour_is_dropped_by_the_next_sign(ledger: Ledger) -> None:
    client = ledger.client
    give_sign(client, "old", sign().words)
    give_sign(client, "older", sign().words)
    now = client.time()[0]
    client.zadd(SIGNS, {"old": (now - 3500) * 1000, "older": (now - 3700) * 1000})
    give_sign(client, "new", sign().words)
    assert sorted(client.hkeys(WORKERS)) == ["new", "old"]
    with client.pipeline() as pipe:
        ask_for_signs(pipe)
        assert sorted(read_signs(pipe.execute())) == ["new", "old"]


def test_a_workers_shards_are_those_that_it_has_a_lease_of(ledger: Ledger) -> None:
    give_sign(ledger.client, "a@h", sign(queue=INFO.queue).words)
    granted(ledger, 3, owner="a@h:/dumps")
    granted(ledger, 1, owner="a@h:/dumps")
    granted(ledger, 2, owner="b@h:/dumps")
    (worker,) = snapshot(ledger).workers
    assert worker.shards == (1, 3)


# --- counters ------------------------------------------------------------------------------------------------


def test_counters_add_up_for_the_run_and_for_the_worker(ledger: Ledger) -> None:
    give_sign(ledger.client, "a", sign().words)
    ledger.add("a", {"samples": 2, "engine.us": 1_500_000, "engine.le.1": 2})
    ledger.add("a", {"samples": 1, "errors.DumpMissing": 1})
    for meters in (
        run_meters(ledger.client, ledger.url, ledger.run), worker_meters_of_all(ledger.client, ledger.url)["a"]
    ):  # fmt: skip
        assert (meters.samples, meters.errors) == (3, {"DumpMissing": 1})
        assert (meters.stages["engine"].count, meters.stages["engine"].seconds) == (2, 1.5)
    assert 0 < ledger.client.pttl("hsq:meters:a") <= 24 * 3600 * 1000


def test_a_dropped_runs_counters_go_and_do_not_come_back(ledger: Ledger) -> None:
    ledger.add("a", {"samples": 2})
    ledger.drop()
    ledger.add("a", {"samples": 2})
    assert ledger.client.exists(ledger.keys.meters) == 0
