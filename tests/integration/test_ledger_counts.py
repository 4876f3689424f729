"""total = done + skipped + failed + pending at every moment, whoever does what; bitmaps at odd boundaries."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hsqueue.contracts.errors import LeaseLost
from hsqueue.contracts.sample import Ending
from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.records import Counts, Lease
from tests.support.ledger import INFO, SAMPLES, SHARDS, SIZE, TTL, done, expire, granted, skipped
from tests.support.redis import RedisServer

SHARED = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)  # fmt: skip


def assert_consistent(ledger: Ledger) -> None:
    """The counters say what the bitmap and the table hold."""
    counts, given_up = ledger.counts(SAMPLES), ledger.given_up()
    finished = ledger.done_in(range(SAMPLES))
    assert counts.done == len(finished)
    assert counts.tokens == sum(100 + index for index in finished)
    for ending, count in ((Ending.SKIPPED, counts.skipped), (Ending.FAILED, counts.failed)):
        assert count == sum(given.ending is ending for given in given_up.values())
    assert not finished & given_up.keys()
    assert counts.pending == SAMPLES - len(finished) - len(given_up)


def disturb(ledger: Ledger, rng: random.Random, owner: str) -> None:
    """One random operation, as any worker, zombie, producer or person may do it."""
    shard = rng.randrange(SHARDS)
    indices = range(shard * SIZE, (shard + 1) * SIZE)
    lease = ledger.acquire(shard, owner, TTL)
    if not isinstance(lease, Lease):
        lease = Lease("r1", shard, owner, rng.randrange(1 << 34), 1)
    chosen = rng.sample(indices, rng.randrange(SIZE + 1))
    action = rng.randrange(7)
    if action <= 2:
        ending = rng.choice([Ending.SKIPPED, Ending.FAILED])
        middle = rng.randrange(len(chosen) + 1)
        try:
            ledger.commit(lease, done(*chosen[:middle]), [skipped(i, ending) for i in chosen[middle:]])
        except LeaseLost:
            return
    elif action == 3:
        ledger.forget(shard, {index: 100 + index for index in chosen})
    elif action == 4:
        ledger.finish(lease)
    elif action == 5:
        expire(ledger, shard)
    ledger.release(lease)


def test_counts_hold_under_operations_of_many_threads(redis: RedisServer, ledger: Ledger) -> None:
    over = threading.Event()
    sums: list[int] = []

    def work(seed: int) -> None:
        rng, mine = random.Random(seed), Ledger(redis.client(), redis.url, "r1")
        for _ in range(150):
            disturb(mine, rng, f"w{seed % 3}")

    def watch() -> None:
        mine = Ledger(redis.client(), redis.url, "r1")
        while not over.is_set():
            found = mine.counts(SAMPLES)
            assert min(found.done, found.skipped, found.failed, found.pending, found.tokens) >= 0
            sums.append(found.done + found.skipped + found.failed + found.pending)

    with ThreadPoolExecutor(7) as pool:
        watching = pool.submit(watch)
        working = [pool.submit(work, seed) for seed in range(6)]
        try:
            for future in working:
                future.result()
        finally:
            over.set()
        watching.result()
    assert set(sums) == {SAMPLES}
    assert_consistent(ledger)


@SHARED
@given(st.randoms(use_true_random=False))
def test_counts_hold_after_any_sequence_of_operations(redis: RedisServer, rng: random.Random) -> None:
    ledger = Ledger(redis.client(), redis.url, "r1")
    ledger.create(INFO, (), (), ())
    for _ in range(20):
        disturb(ledger, rng, rng.choice("ab"))
        assert_consistent(ledger)


def test_two_threads_that_commit_the_same_samples_count_them_once(redis: RedisServer, ledger: Ledger) -> None:
    """As a commit does that is sent again because its reply was lost."""
    lease = granted(ledger)
    with ThreadPoolExecutor(4) as pool:
        recorded = list(
            pool.map(lambda _: Ledger(redis.client(), redis.url, "r1").commit(lease, done(0, 1, 2)), range(12))
        )
    assert sorted(recorded) == [0] * 11 + [3]
    assert ledger.counts(SAMPLES) == Counts(SAMPLES, 3, 0, 0, 303)


# --- bitmaps ------------------------------------------------------------------------------------------------

BORDERS = [0, 1, 6, 7, 8, 9, 15, 16, 63, 64, 65, 127, 128, 1000, 4095]


@pytest.mark.parametrize("index", BORDERS)
def test_a_commit_sets_the_bit_of_its_index_and_no_other(ledger: Ledger, index: int) -> None:
    ledger.commit(granted(ledger), done(index))
    assert ledger.done_in(range(5000)) == {index}
    assert ledger.done_in(range(index, index + 1)) == {index}
    assert ledger.done_in(range(index + 1, index + 20)) == set()
    assert ledger.done_in(range(max(0, index - 20), index)) == set()
    assert ledger.is_done(index)


@SHARED
@given(finished=st.sets(st.integers(0, 70)), begin=st.integers(0, 70), length=st.integers(0, 30))
def test_a_range_of_any_boundaries_is_read_right(
    redis: RedisServer, finished: set[int], begin: int, length: int
) -> None:
    ledger = Ledger(redis.client(), redis.url, "r2")
    ledger.create(replace(INFO, run="r2", samples=71), done(*finished), (), ())
    indices = range(begin, begin + length)
    assert ledger.done_in(indices) == finished & set(indices)


@SHARED
@given(finished=st.sets(st.integers(0, 70)), ended=st.sets(st.integers(0, 17)))
def test_a_created_ledger_is_as_if_every_ending_had_been_committed(
    redis: RedisServer, finished: set[int], ended: set[int]
) -> None:
    info = replace(INFO, samples=71, shards=18)
    created, told = Ledger(redis.client(), redis.url, "r3"), Ledger(redis.client(), redis.url, "r4")
    lost = [skipped(index) for index in range(71) if index not in finished]
    created.create(replace(info, run="r3"), done(*finished), lost, ended)
    told.create(replace(info, run="r4"), (), (), ())
    for shard in range(18):
        mine = range(shard * SIZE, min(71, (shard + 1) * SIZE))
        lease = granted(told, shard)
        told.commit(lease, done(*(i for i in mine if i in finished)), [skipped(i) for i in mine if i not in finished])
        if shard in ended:
            told.finish(lease)
    assert created.counts(71) == told.counts(71)
    assert created.done_in(range(71)) == told.done_in(range(71)) == finished
    assert created.given_up() == told.given_up()
    assert created.ended_shards(18) == told.ended_shards(18) == ended


def test_no_shards_and_no_samples_are_no_error(ledger: Ledger) -> None:
    assert ledger.done_in(range(0)) == set()
    assert ledger.ended_shards(0) == set()
    assert ledger.suspects([]) == {}
    assert ledger.lease_attempts([]) == {}


def test_token_counts_beyond_32_bits_are_exact(ledger: Ledger) -> None:
    lease, large = granted(ledger), 10**14 + 1
    ledger.commit(lease, [replace(done(0)[0], tokens=large), replace(done(1)[0], tokens=large)])
    assert ledger.counts(SAMPLES).tokens == 2 * large
    ledger.forget(0, {0: large})
    assert ledger.counts(SAMPLES).tokens == large
