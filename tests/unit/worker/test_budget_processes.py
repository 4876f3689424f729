"""The budget between real processes, killed ones among them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hsworker import budget as budgets
from hsworker.budget import Budget
from hsworker.turns import Limits
from tests.support.sharer import Sharer, sharers

LIMITS = Limits(requests=4, tokens=40, bytes=100)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget"


@pytest.fixture
def pair(path: Path) -> Iterator[tuple[Sharer, Sharer]]:
    """Two processes, the elder first."""
    with sharers(2, path, LIMITS) as (elder, younger):
        yield elder, younger


def test_what_one_process_takes_the_other_cannot(pair: tuple[Sharer, Sharer]) -> None:
    elder, younger = pair
    assert [elder.take(1, 10) for _ in range(3)] == [True] * 3
    assert [younger.take(1, 10), younger.take(1, 10)] == [True, False]
    elder.answered(1)
    assert younger.take(1, 10)


def test_bytes_are_free_once_the_dump_is_taken_and_not_before(pair: tuple[Sharer, Sharer]) -> None:
    elder, younger = pair
    assert elder.take(1, 90)
    elder.answered(1)
    assert not younger.take(1, 20)
    elder.taken(90)
    assert younger.take(1, 20)


def test_the_elder_goes_first(pair: tuple[Sharer, Sharer]) -> None:
    elder, younger = pair
    elder.declare(wants=True, fence=7)
    assert (younger.is_turn(), younger.take(1, 10)) == (False, False)
    assert (elder.is_turn(), elder.take(1, 10)) == (True, True)
    elder.declare(wants=False, fence=7)
    assert (younger.is_turn(), younger.take(1, 10)) == (True, True)


def test_a_process_alone_keeps_the_other_out_until_it_is_answered(pair: tuple[Sharer, Sharer]) -> None:
    elder, younger = pair
    assert elder.take(1, 10)
    assert not younger.take(1, 10, alone=True)
    assert not elder.take(1, 10)
    elder.answered(1)
    assert younger.take(1, 10, alone=True)
    assert not elder.take(1, 10)
    assert not elder.take(1, 10, alone=True)
    younger.answered(1)
    assert elder.take(1, 10, alone=True)


def test_one_process_sends_nothing_beside_its_own_lone_request(pair: tuple[Sharer, Sharer]) -> None:
    elder, _ = pair
    assert elder.take(1, 10, alone=True)
    assert [elder.take(1, 10), elder.take(1, 10, alone=True)] == [False, False]
    elder.answered(1)
    assert elder.take(1, 10)


def test_a_wish_to_be_alone_ends_with_its_shard(pair: tuple[Sharer, Sharer]) -> None:
    elder, younger = pair
    assert elder.take(1, 10)
    assert not younger.take(1, 10, alone=True)
    younger.close()
    assert elder.take(1, 10)


def test_a_killed_process_counts_for_nothing(path: Path, pair: tuple[Sharer, Sharer]) -> None:
    elder, younger = pair
    elder.declare(wants=True, fence=7)
    assert all(elder.take(1, 25) for _ in range(4))
    assert not elder.take(1, 1, alone=True)
    elder.kill()
    assert younger.is_turn()
    assert younger.take(1, 100)
    assert [slot.pid for slot in Budget(path, LIMITS).slots()] == [younger.process.pid]


# --- who is woken ---------------------------------------------------------------------------------------------

SOON, LONG = 0.02, 20.0


def test_whoever_waits_for_its_turn_is_woken_when_it_comes_and_not_before(pair: tuple[Sharer, Sharer]) -> None:
    elder, younger = pair
    elder.declare(wants=True, fence=7)
    assert elder.take(1, 10)
    assert not younger.is_turn()
    elder.answered(1)
    elder.taken(10)
    assert not younger.wait(SOON)
    elder.declare(wants=False, fence=7)
    assert younger.wait(LONG)
    assert younger.is_turn()


@pytest.mark.parametrize("size", [10, 25])
def test_whoever_was_refused_is_woken_by_what_is_freed(pair: tuple[Sharer, Sharer], size: int) -> None:
    elder, younger = pair
    assert all(elder.take(1, 25) for _ in range(4))
    assert not younger.take(1, size)
    elder.answered(1)
    assert younger.wait(LONG)
    assert not younger.take(1, size)
    elder.taken(25)
    assert younger.wait(LONG)
    assert younger.take(1, size)
    elder.answered(1)
    assert not younger.wait(SOON), "it was granted what it had asked for"


def test_whoever_waits_to_be_alone_is_woken_although_it_is_not_its_turn(pair: tuple[Sharer, Sharer]) -> None:
    elder, younger = pair
    elder.declare(wants=True, fence=7)
    assert elder.take(1, 10)
    assert not younger.take(1, 10, alone=True)
    elder.answered(1)
    assert younger.wait(LONG)
    assert younger.take(1, 10, alone=True)


def test_the_end_of_a_shard_wakes_whoever_waits_for_it(pair: tuple[Sharer, Sharer]) -> None:
    elder, younger = pair
    elder.declare(wants=True, fence=7)
    assert not younger.is_turn()
    elder.close()
    assert younger.wait(LONG)
    assert younger.is_turn()


def test_a_process_wakes_itself(path: Path) -> None:
    share = Budget(path, LIMITS).open()
    assert not share.wait(SOON)
    threading.Timer(SOON, share.wake).start()
    assert share.wait(LONG)


def test_the_fences_of_living_processes_are_known(path: Path, pair: tuple[Sharer, Sharer]) -> None:
    elder, younger = pair
    elder.declare(wants=True, fence=(1 << 40) + 1)
    younger.declare(wants=False, fence=(1 << 40) + 2)
    assert {slot.fence for slot in Budget(path, LIMITS).slots()} == {(1 << 40) + 1, (1 << 40) + 2}
    younger.kill()
    assert {slot.fence for slot in Budget(path, LIMITS).slots()} == {(1 << 40) + 1}


def test_a_new_shard_of_a_process_begins_with_nothing_taken(path: Path) -> None:
    budget = Budget(path, LIMITS)
    share = budget.open()
    assert share.take(1, 50)
    share = budget.open()
    (slot,) = budget.slots()
    assert (slot.pid, slot.requests, slot.bytes) == (os.getpid(), 0, 0)
    share.close()
    assert budget.slots() == []


def test_more_processes_than_slots_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "SLOTS", 1)
    with sharers(1, path, LIMITS) as (only,):
        with pytest.raises(RuntimeError, match="share one engine"):
            Budget(path, LIMITS).open()
        only.kill()
        Budget(path, LIMITS).open()


def test_threads_of_one_process_never_exceed_the_limits(path: Path) -> None:
    share = Budget(path, LIMITS).open()
    lock, flying, most = threading.Lock(), 0, 0

    def work(_: int) -> int:
        nonlocal flying, most
        granted = 0
        for _ in range(100):
            if share.take(1, 20):
                with lock:
                    flying += 1
                    most = max(most, flying)
                with lock:
                    flying -= 1
                share.answered(1)
                share.taken(20)
                granted += 1
        return granted

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) > 0
    assert most <= LIMITS.requests


def test_processes_that_take_and_die_at_random_never_exceed_the_limits(path: Path) -> None:
    budget = Budget(path, LIMITS)
    looks = 0
    with sharers(3, path, LIMITS) as storming:
        for seed, one in enumerate(storming):
            assert one.storm(seed, 40) == "storming"
        for victim in (None, *storming):
            if victim is not None:
                victim.kill()
            deadline = time.monotonic() + 0.3
            while time.monotonic() < deadline:
                slots = budget.slots()
                assert sum(s.requests for s in slots) <= LIMITS.requests
                assert sum(s.bytes for s in slots) <= LIMITS.bytes
                assert all(s.requests >= 0 and s.bytes >= 0 for s in slots)
                looks += 1
    assert looks > 100
    assert budget.slots() == []
    assert budget.open().take(1, 1000)
