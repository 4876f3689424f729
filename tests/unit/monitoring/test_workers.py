"""Workers from their signs of life, which are foreign input."""

from __future__ import annotations

import pytest

from hsqueue.ledger.signs import Sign, read_signs
from hsqueue.monitoring.limits import SILENCE
from hsqueue.monitoring.workers import worker_states
from tests.support.views import WORDS, sign


def test_what_a_worker_says_is_taken_over() -> None:
    (state,) = worker_states({"gpu0@node0": sign()}, {"gpu0@node0": (3, 4)})
    assert (state.name, state.shards, state.seen, state.state) == ("gpu0@node0", (3, 4), 1.0, "serving")
    for name, value in WORDS.items():
        assert getattr(state, name) == value, name


@pytest.mark.parametrize(("age", "state"), [(SILENCE - 0.1, "serving"), (SILENCE, "gone"), (3000.0, "gone")])
def test_silence_makes_it_gone(age: float, state: str) -> None:
    (found,) = worker_states({"a": sign(age)}, {})
    assert found.state == state


def test_who_is_gone_has_nothing_in_flight() -> None:
    (state,) = worker_states({"a": sign(60.0)}, {"a": (7,)})
    assert (state.requests, state.tokens, state.tokens_per_second, state.leases) == (0, 0, 0.0, 0)
    assert state.shards == (7,), "its leases live on for a while"


@pytest.mark.parametrize("name", sorted(WORDS))
@pytest.mark.parametrize("value", [None, [], {"a": 1}, float("nan")])
def test_nonsense_hides_no_other_worker(name: str, value: object) -> None:
    states = worker_states({"a": sign(**{name: value}), "b": sign()}, {})
    assert [state.name for state in states] == ["b"]


@pytest.mark.parametrize("words", ["", "[]", "null", "7", '"x"', "{}", "[" * 100_000])
def test_what_is_no_sign_is_passed_over(words: str) -> None:
    assert worker_states({"a": Sign(1.0, words)}, {}) == ()


def test_signs_have_their_age_by_redis_clock() -> None:
    replies = (
        {"a": "A", "b": "B", "c": "C", "d": "D"},
        [("a", 998_000.0), ("b", 1_001_000.0), ("c", -1e9)],
        (1000, 500_000),
    )
    assert read_signs(replies) == {"a": Sign(2.5, "A"), "b": Sign(0.0, "B")}
