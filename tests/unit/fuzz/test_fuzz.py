"""A part of ``make fuzz``: no reader falls over what comes from outside, and none takes what is not right."""

from __future__ import annotations

import random

import pytest

from tests.fuzz.dumps import GENUINE, OTHERS, make, wrong
from tests.fuzz.rounds import TARGETS, feed, spread

ITEMS = 30_000
"""Of all readers together; some twenty seconds."""


@pytest.mark.parametrize("name", TARGETS)
def test_no_crash_and_no_wrong_accept(name: str) -> None:
    tally = feed(name, spread(ITEMS)[name], seed=1)
    assert tally.refused > tally.items / 4, "changes that nobody refuses try nothing"
    assert tally.accepted > 0, "where everything is refused, a wrong accept cannot show"


def test_the_oracle_knows_the_genuine_dump_and_no_other() -> None:
    assert wrong(GENUINE) is None
    assert [wrong(other) for other in OTHERS].count(None) == 0


def test_an_item_can_be_made_again() -> None:
    assert make(random.Random("dump 1 5")) == make(random.Random("dump 1 5"))
