"""Who may send: pure rules, without a process or a file."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from hsworker.turns import Limits, Slot, Waits, hears, is_turn, may_send, waits_for

LIMITS = Limits(requests=4, tokens=40, bytes=100)
ELDER, MINE, YOUNGER = Slot(1, 1.0), Slot(2, 2.0), Slot(3, 3.0)
SLOTS = st.builds(
    Slot, pid=st.integers(1, 9), since=st.sampled_from([1.0, 2.0, 3.0]), requests=st.integers(0, 4),
    bytes=st.integers(0, 120), tokens=st.integers(0, 60), wants=st.booleans(), alone=st.booleans(),
)  # fmt: skip


def may(mine: Slot, *others: Slot, size: int = 10, tokens: int = 1) -> bool:
    return may_send(mine, others, tokens, size, LIMITS)


# --- turns ----------------------------------------------------------------------------------------------------


def test_it_is_the_elders_turn_while_it_wants_something() -> None:
    assert not is_turn(MINE, [ELDER._replace(wants=True)])
    assert is_turn(ELDER, [MINE._replace(wants=True)])


def test_an_elder_that_wants_nothing_lets_the_younger_send() -> None:
    assert is_turn(MINE, [ELDER._replace(requests=4)])


def test_of_two_that_began_at_once_one_is_the_elder() -> None:
    one, other = Slot(1, 1.0, wants=True), Slot(2, 1.0, wants=True)
    assert (is_turn(one, [other]), is_turn(other, [one])) == (True, False)


@given(st.lists(SLOTS, min_size=1, max_size=4, unique_by=lambda slot: slot.pid))
def test_it_is_always_the_turn_of_exactly_one_that_wants_something(slots: list[Slot]) -> None:
    wanting = [s for s in slots if s.wants]
    turns = [s for s in wanting if is_turn(s, [o for o in slots if o is not s])]
    assert len(turns) == (1 if wanting else 0)


# --- limits ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("requests", "sent"), [(0, True), (3, True), (4, False), (5, False)])
def test_requests_of_all_count_together(requests: int, sent: bool) -> None:
    assert may(MINE._replace(requests=requests // 2), YOUNGER._replace(requests=requests - requests // 2)) == sent


@pytest.mark.parametrize(("held", "size", "sent"), [(90, 10, True), (91, 10, False), (50, 50, True), (50, 51, False)])
def test_bytes_of_all_count_together(held: int, size: int, sent: bool) -> None:
    assert may(MINE._replace(requests=1, bytes=held - 20), YOUNGER._replace(bytes=20), size=size) == sent


def test_a_dump_larger_than_the_limit_goes_when_nothing_else_is_about() -> None:
    assert may(MINE, YOUNGER, size=1000)
    assert not may(MINE._replace(requests=1), size=1000)
    assert not may(MINE, YOUNGER._replace(bytes=1), size=1000)


@pytest.mark.parametrize(("flying", "tokens", "sent"), [(30, 10, True), (31, 10, False), (39, 1, True), (40, 1, False)])
def test_tokens_of_all_count_together(flying: int, tokens: int, sent: bool) -> None:
    assert may(MINE._replace(requests=1, tokens=flying - 20), YOUNGER._replace(tokens=20), tokens=tokens) == sent


def test_a_prompt_longer_than_the_limit_goes_when_nothing_else_is_about() -> None:
    assert may(MINE, YOUNGER, tokens=1000)
    assert not may(MINE._replace(requests=1, tokens=1), tokens=1000)


@given(SLOTS, st.lists(SLOTS, max_size=3), st.integers(0, 150), st.integers(0, 50))
def test_no_grant_exceeds_the_limits_but_for_a_lone_request(
    mine: Slot, others: list[Slot], size: int, tokens: int
) -> None:
    requests = mine.requests + sum(o.requests for o in others)
    held = mine.bytes + sum(o.bytes for o in others)
    flying = mine.tokens + sum(o.tokens for o in others)
    if may(mine, *others, size=size, tokens=tokens):
        assert requests < LIMITS.requests
        assert requests == held == 0 or held + size <= LIMITS.bytes
        assert requests == 0 or flying + tokens <= LIMITS.tokens or mine.alone


# --- alone ----------------------------------------------------------------------------------------------------


def test_alone_means_that_no_request_is_in_flight() -> None:
    alone = MINE._replace(alone=True)
    assert may(alone, ELDER, YOUNGER)
    assert not may(alone._replace(requests=1))
    assert not may(alone, YOUNGER._replace(requests=1))


def test_dumps_that_wait_do_not_disturb_a_lone_request_while_there_is_room() -> None:
    alone = MINE._replace(alone=True)
    assert may(alone._replace(bytes=40), YOUNGER._replace(bytes=50), size=10)
    assert not may(alone._replace(bytes=40), YOUNGER._replace(bytes=50), size=11)
    assert may(alone, YOUNGER, size=1000)


def test_whoever_waits_to_be_alone_holds_everybody_back() -> None:
    assert not may(MINE, YOUNGER._replace(alone=True))
    assert not may(MINE, ELDER._replace(alone=True))


def test_of_two_that_want_to_be_alone_the_elder_goes_first() -> None:
    one, other = ELDER._replace(alone=True), MINE._replace(alone=True)
    assert (may(one, other), may(other, one)) == (True, False)


@given(st.lists(SLOTS, min_size=1, max_size=4, unique_by=lambda slot: slot.pid))
def test_once_everything_is_answered_and_read_somebody_may_send(slots: list[Slot]) -> None:
    """No set of wishes blocks the engine for good."""
    idle = [s._replace(requests=0, bytes=0, wants=True) for s in slots]
    assert any(may(s, *(o for o in idle if o is not s), size=1000) for s in idle)


# --- what a refused shard waits for ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        ELDER._replace(wants=True), YOUNGER._replace(requests=1), YOUNGER._replace(bytes=1),
        YOUNGER._replace(alone=True),
    ],
)  # fmt: skip
def test_another_that_may_let_it_send_is_looked_at(other: Slot) -> None:
    assert waits_for(MINE, [other]) is (Waits.ELDER if other.wants else Waits.OTHERS)


def test_a_younger_one_that_only_wants_is_none_to_wait_for() -> None:
    assert waits_for(MINE, [YOUNGER._replace(wants=True)]) is Waits.ITSELF


@given(SLOTS, st.lists(SLOTS, max_size=3), st.integers(1, 60), st.integers(1, 120))
def test_those_it_does_not_wait_on_change_nothing(mine: Slot, others: list[Slot], tokens: int, size: int) -> None:
    if waits_for(mine, others) is Waits.ITSELF:
        assert may_send(mine, others, tokens, size, LIMITS) == may_send(mine, [], tokens, size, LIMITS)


# --- who is woken ---------------------------------------------------------------------------------------------

FREES: list[Callable[[Slot], Slot]] = [
    lambda s: s._replace(requests=0, tokens=0, alone=False),
    lambda s: s._replace(bytes=0),
    lambda s: s._replace(wants=False),
    lambda _: Slot(0, 0.0),
]


@example(MINE._replace(alone=True), [ELDER._replace(wants=True, requests=1)], FREES[0], 1, 10)
@given(
    SLOTS, st.lists(SLOTS, min_size=1, max_size=3), st.sampled_from(FREES), st.integers(1, 60), st.integers(1, 120)
)  # fmt: skip
def test_whoever_was_refused_hears_of_what_lets_it_send(
    mine: Slot, others: list[Slot], free: Callable[[Slot], Slot], tokens: int, size: int
) -> None:
    assume(not may_send(mine, others, tokens, size, LIMITS))
    mine = mine._replace(waits=waits_for(mine, others))
    freed = [free(others[0]), *others[1:]]
    if may_send(mine, freed, tokens, size, LIMITS):
        assert hears(mine, freed)


@given(SLOTS, st.lists(SLOTS, min_size=1, max_size=3), st.sampled_from(FREES))
def test_whoever_waits_for_its_turn_hears_of_it_and_of_nothing_else(
    mine: Slot, others: list[Slot], free: Callable[[Slot], Slot]
) -> None:
    assume(not is_turn(mine, others))
    freed = [free(others[0]), *others[1:]]
    assert hears(mine._replace(waits=Waits.ELDER), freed) == is_turn(mine, freed)


@given(SLOTS, st.lists(SLOTS, max_size=3))
def test_whoever_waits_for_nobody_hears_nothing(mine: Slot, others: list[Slot]) -> None:
    assert not hears(mine._replace(waits=Waits.ITSELF), others)
