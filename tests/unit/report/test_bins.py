from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsqueue.contracts.work import Span
from hsqueue.report.bins import MOST_BINS, byte_unit, covered, histogram, rates, round_step

COUNTS = st.dictionaries(st.integers(0, 1 << 45), st.integers(1, 10**6), max_size=50)
TIMES = st.floats(0, 1e10)
SPANS = st.lists(st.builds(Span, st.sampled_from("abc"), TIMES, TIMES, st.integers(0, 99), st.integers(0, 10**9)))


@given(COUNTS, st.sampled_from([1.0, 1024.0, 1024.0**3]))
def test_every_value_is_in_one_bin(counts: dict[int, int], unit: float) -> None:
    bins = histogram(counts, unit)
    assert sum(one.count for one in bins) == sum(counts.values())
    assert len(bins) <= MOST_BINS + 1
    for before, after in itertools.pairwise(bins):
        assert before.high == pytest.approx(after.low)


@given(st.dictionaries(st.integers(0, 5000), st.integers(1, 9), min_size=1, max_size=50))
def test_a_bin_counts_what_lies_in_it(counts: dict[int, int]) -> None:
    for one in histogram(counts):
        end = float("inf") if one.high is None else one.high
        assert one.count == sum(n for number, n in counts.items() if one.low <= number < end)


def test_what_is_far_out_has_one_bin_without_end() -> None:
    bins = histogram(Counter(range(1000)) + Counter({10**9: 3}))
    assert (bins[-1].high, bins[-1].count) == (None, 3)
    assert bins[-2].high is not None
    assert bins[-2].high <= 1010


def test_one_length_has_one_bin() -> None:
    assert [(one.low, one.high, one.count) for one in histogram({7: 4})] == [(7.0, 8.0, 4)]


@given(st.floats(1e-6, 1e15))
def test_steps_are_round_and_large_enough(least: float) -> None:
    step = round_step(least)
    assert least * (1 - 1e-6) <= step <= least * 2.6
    assert f"{step:.0e}"[0] in "125"


def test_units_of_bytes() -> None:
    assert [byte_unit(n)[1] for n in (0, 1023, 1024, 1 << 20, 1 << 30, 1 << 41)] == [
        "B", "B", "KiB", "MiB", "GiB", "TiB",
    ]  # fmt: skip


@given(SPANS)
def test_no_token_is_lost_over_time(spans: list[Span]) -> None:
    found = rates(spans, 10)
    told = [span for span in spans if span.ended]
    if found is None:
        assert told == []
        return
    width = max((found.ended - found.began) / 10, 1e-3)
    assert sum(w.tokens for w in found.workers) == sum(span.tokens for span in told)
    for worker in found.workers:
        assert sum(worker.rates) * width == pytest.approx(worker.tokens, rel=1e-4, abs=1)
    assert sum(found.together) * width == pytest.approx(sum(span.tokens for span in told), rel=1e-4, abs=1)
    assert 0 <= found.busy <= found.ended - found.began + 1e-3


def test_a_leases_tokens_are_spread_evenly_over_its_life() -> None:
    found = rates([Span("a", 0.0, 10.0, 5, 100), Span("b", 5.0, 10.0, 2, 50), Span("a", 3.0)], 10)
    assert found is not None
    first, second = found.workers
    assert (first.worker, first.rates, first.rate, first.shards) == ("a", (10.0,) * 10, 10.0, 1)
    assert (second.worker, second.rates, second.busy) == ("b", (0.0,) * 5 + (10.0,) * 5, 5.0)


def test_time_that_overlaps_counts_once() -> None:
    assert covered([Span("a", 0.0, 4.0), Span("a", 2.0, 5.0), Span("a", 9.0, 10.0), Span("a", 9.2, 9.4)]) == 6.0
