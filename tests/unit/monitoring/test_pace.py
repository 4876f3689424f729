"""The pace of a run from the marks in its ledger."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsqueue.monitoring.pace import NO_PACE, PLACES, pace_of, tokens_left

START = 1_800_000_000.0


class Marks:
    """What pace.lua writes, for commits told by their time and tokens."""

    def __init__(self, began: float) -> None:
        self.fields = {"began": _ms(began), "resumed": _ms(began)}
        self.tokens, self.worked, self.last = 0, 0.0, began

    def commit(self, at: float, tokens: int) -> None:
        if at - self.last > 300:
            self.fields["resumed"] = _ms(at)
        else:
            self.worked += at - self.last
        self.last = at
        self.tokens += tokens
        bucket = int(at // 10)
        before = self.fields.get(str(bucket % PLACES), "0 0").split(" ")
        count = tokens + (int(before[1]) if int(before[0]) == bucket else 0)
        self.fields |= {
            "last": _ms(at), "tokens": str(self.tokens), "worked": str(round(self.worked * 1000)),
            str(bucket % PLACES): f"{bucket} {count}",
        }  # fmt: skip


def _ms(seconds: float) -> str:
    return str(round(seconds * 1000))


def steady(seconds: int, rate: int = 100, began: float = START) -> Marks:
    marks = Marks(began)
    for second in range(1, seconds + 1):
        marks.commit(began + second, rate)
    return marks


def test_nothing_is_known_before_the_first_lease() -> None:
    assert pace_of({}, START, 1000.0, pending=True) == NO_PACE


@pytest.mark.parametrize("seconds", [5, 60, 299, 300, 301, 1000, 5000])
def test_a_steady_run_has_its_rate_from_the_beginning_and_ever_after(seconds: int) -> None:
    pace = pace_of(steady(seconds).fields, START + seconds, 5000.0, pending=True)
    assert pace.recent == pytest.approx(100, rel=0.04)
    assert pace.overall == pytest.approx(100, rel=0.01)
    assert pace.seconds_left == pytest.approx(50, rel=0.04)
    assert pace.began == START
    assert pace.idle == 0.0


def test_a_young_run_counts_from_its_beginning_within_a_bucket() -> None:
    marks = Marks(START + 9)
    marks.commit(START + 12, 300)
    assert pace_of(marks.fields, START + 12, 300.0, pending=True).recent == pytest.approx(100)


def test_a_run_that_slows_down_shows_it_in_the_recent_rate() -> None:
    marks = steady(1000)
    for second in range(1001, 1301):
        marks.commit(START + second, 10)
    pace = pace_of(marks.fields, START + 1300, 5000.0, pending=True)
    assert pace.recent == pytest.approx(10, rel=0.04)
    assert pace.overall == pytest.approx(103_000 / 1300, rel=0.01)


def test_a_run_that_stands_still_slows_down_to_nothing_and_has_no_end() -> None:
    marks = steady(1000).fields
    rates = [pace_of(marks, START + 1000 + still, 5000.0, pending=True).recent for still in (0, 60, 150, 290)]
    assert rates == sorted(rates, reverse=True)
    assert rates[1] == pytest.approx(80, rel=0.05)
    dead = pace_of(marks, START + 1400, 5000.0, pending=True)
    assert (dead.recent, dead.seconds_left, dead.idle) == (0.0, None, 400.0)
    assert dead.overall == pytest.approx(100, rel=0.01), "what it did is not forgotten"


def test_a_night_between_two_days_counts_for_nothing() -> None:
    marks = steady(100)
    morning = START + 30_000
    for second in range(1, 51):
        marks.commit(morning + second, 100)
    pace = pace_of(marks.fields, morning + 50, 5000.0, pending=True)
    assert pace.overall == pytest.approx(100, rel=0.02)
    assert pace.recent == pytest.approx(100, rel=0.05)


def test_a_run_that_has_ended_keeps_its_figures() -> None:
    marks = steady(400).fields
    at_once = pace_of(marks, START + 401, 0.0, pending=False)
    assert at_once.recent == pytest.approx(100, rel=0.04)
    assert at_once.seconds_left == 0.0
    assert pace_of(marks, START + 90_000, 0.0, pending=False) == at_once


def test_buckets_of_an_hour_ago_do_not_count_again() -> None:
    marks = steady(600)
    marks.fields["resumed"] = _ms(START + 4000)
    marks.commit(START + 4010, 1)
    pace = pace_of(marks.fields, START + 4020, 100.0, pending=True)
    assert pace.recent == pytest.approx(1 / 20, abs=0.06)


@given(st.dictionaries(st.sampled_from(["began", "resumed", "last", "3", "tokens", "worked"]), st.text(max_size=12)))
def test_marks_that_nobody_wrote_are_refused_or_give_numbers(marks: dict[str, str]) -> None:
    try:
        pace = pace_of(marks, START, 10.0, pending=True)
    except (ValueError, KeyError, ArithmeticError):
        return
    assert pace.recent == pace.recent


@pytest.mark.parametrize(
    ("planned", "done", "pending", "given_up", "left"),
    [(1000, 400, 6, 0, 600), (1000, 400, 3, 3, 300), (1000, 1000, 0, 0, 0), (1000, 600, 0, 4, 0), (10, 20, 1, 0, 0)],
)
def test_tokens_left_are_those_of_pending_samples(
    planned: int, done: int, pending: int, given_up: int, left: float
) -> None:
    assert tokens_left(planned, done, pending, given_up) == left
