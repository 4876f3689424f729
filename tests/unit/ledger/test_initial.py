"""What a new ledger holds, from what the volume holds."""

from __future__ import annotations

from array import array

import pytest

from hsqueue.contracts.sample import Ending
from hsqueue.ledger.bits import positions_of
from hsqueue.ledger.counters import pack, unpack
from hsqueue.ledger.initial import NEWEST, initial
from hsqueue.ledger.records import LedgerInfo, given_up_from_json
from tests.support.ledger import INFO, done, skipped


def test_samples_shards_counts_and_troubles_are_those_of_the_volume() -> None:
    given_up = [skipped(4), skipped(6, Ending.FAILED), skipped(19)]
    made = initial(INFO, done(0, 3, 18), given_up, [1, 4])
    assert (positions_of(made.done), positions_of(made.ended)) == ([0, 3, 18], [1, 4])
    assert made.counts == {"done": 3, "skipped": 2, "failed": 1, "tokens": 100 + 103 + 118}
    assert [given_up_from_json(int(index), text) for index, text in made.given_up.items()] == given_up
    assert list(unpack(made.troubled)) == [0, 2, 0, 0, 1]
    assert (made.newest_failed, made.newest_skipped) == ([6], [4, 19])


def test_nothing_ended_is_nothing_but_zeros() -> None:
    made = initial(INFO, (), (), ())
    assert (positions_of(made.done), positions_of(made.ended), set(made.counts.values())) == ([], [], {0})
    assert (made.given_up, made.troubled, made.newest_failed, made.newest_skipped) == ({}, b"", [], [])


def test_of_many_given_up_the_last_are_the_newest() -> None:
    large = LedgerInfo("r1", "/run", 1000, 10, 100, "hsq.q", 1, 1, 1, "m")
    made = initial(large, (), [skipped(index) for index in reversed(range(300))], ())
    assert made.newest_skipped == list(range(300 - NEWEST, 300))


def test_counters_are_of_32_bits_with_the_highest_byte_first() -> None:
    counters = array("I", [1, 2**32 - 1, 0])
    assert pack(counters) == b"\0\0\0\1\xff\xff\xff\xff\0\0\0\0"
    assert counters[0] == 1, "the caller's are left as they are"
    assert list(unpack(pack(counters) + b"\0")) == [1, 2**32 - 1, 0]


@pytest.mark.parametrize(
    "text", ["[]", "{}", '["done", "1", "E", "d"]', '["nothing", 1, "E", "d"]', '["failed", 1, 2, "d"]']
)
def test_what_is_no_ending_is_refused(text: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        given_up_from_json(0, text)
