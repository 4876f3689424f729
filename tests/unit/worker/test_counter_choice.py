"""Which of several dumps of the older layout is whose: stale ones, names used before, lengths in flight."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hsqueue.contracts.errors import DumpAmbiguous, DumpMissing
from hsqueue.contracts.sample import Sample
from hsworker.counter_dumps import CounterDumps
from tests.support.counter import SAMPLE, TOKENS, assert_holds, rid, take, write_counter_dump, write_meta

Make = Callable[[], CounterDumps]


def test_dumps_from_before_are_nobodys(root: Path, make: Make) -> None:
    stale = write_counter_dump(root, 0, seed=9)
    dumps = make()
    dumps.announce(rid(0), SAMPLE)
    with pytest.raises(DumpMissing):
        take(dumps, 0, 0.1)
    write_counter_dump(root, 1, seed=1)
    assert_holds(take(dumps, 0), 1)
    assert stale.exists()


def test_a_restarted_engine_that_counts_from_zero_again_is_followed(root: Path, make: Make) -> None:
    dumps = make()
    for attempt in range(3):
        dumps.announce(rid(attempt), SAMPLE)
        write_counter_dump(root, 0, seed=attempt)
        assert_holds(take(dumps, attempt), attempt)
        dumps.forget(rid(attempt), orphaned=False)


def test_a_restarted_engine_that_overwrites_stale_dumps_is_followed(root: Path, make: Make) -> None:
    write_counter_dump(root, 0, seed=9)
    dumps = make()
    dumps.announce(rid(0), SAMPLE)
    write_counter_dump(root, 0, seed=1)
    assert_holds(take(dumps, 0), 1)


def test_health_checks_and_other_lengths_are_left_where_they_are(root: Path, make: Make) -> None:
    dumps = make()
    dumps.announce(rid(0), SAMPLE)
    others = [write_counter_dump(root, 0, seed=5, tokens=1), write_counter_dump(root, 1, seed=6, tokens=TOKENS + 1)]
    write_counter_dump(root, 2, seed=1)
    assert_holds(take(dumps, 0), 1)
    assert all(path.exists() for path in others)


def test_two_dumps_of_the_length_are_ambiguous_and_none_is_taken(root: Path, make: Make) -> None:
    dumps = make()
    dumps.announce(rid(0), SAMPLE)
    write_counter_dump(root, 0, seed=1)
    write_counter_dump(root, 1, seed=2)
    with pytest.raises(DumpAmbiguous, match="2 dumps of 7 tokens"):
        take(dumps, 0)
    assert sorted(path.name for path in root.iterdir() if path.name != ".hsqueue") == ["req_0", "req_1"]


def test_a_prompt_of_one_token_is_ambiguous(make: Make) -> None:
    with pytest.raises(DumpAmbiguous, match="health checks"):
        make().announce(rid(0), Sample(0, "x", SAMPLE.input_ids[:1], b"\1"))


def test_a_second_request_of_the_length_waits_for_the_first(root: Path, make: Make) -> None:
    dumps = make()
    dumps.announce(rid(0), SAMPLE)
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(dumps.announce, rid(1), SAMPLE)
        with pytest.raises(TimeoutError):
            second.result(0.1)
        write_counter_dump(root, 0, seed=1)
        assert_holds(take(dumps, 0), 1)
        dumps.forget(rid(0), orphaned=False)
        second.result(10)
    write_counter_dump(root, 1, seed=2)
    assert_holds(take(dumps, 1), 2)


def test_a_dump_that_went_away_is_missing(root: Path, make: Make) -> None:
    dumps = make()
    dumps.announce(rid(0), SAMPLE)
    (root / "req_0").mkdir()
    write_meta(root / "req_0")
    with pytest.raises(DumpMissing, match="no aux_hidden_states yet"):
        take(dumps, 0, 0.0)
    shutil.rmtree(root / "req_0")
    with pytest.raises(DumpMissing, match="went away"):
        take(dumps, 0, 0.1)
