"""plan.json: statistics against their definitions, and the way there and back."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsqueue.contracts.errors import RunDamaged
from hsqueue.planning.report import PERCENTILES, PlanReport, SourceReport, length_statistics


def test_statistics_of_a_few_lengths() -> None:
    found = length_statistics(Counter([1, 2, 3, 4, 100]))
    assert (found.shortest, found.longest, found.mean) == (1, 100, 22.0)
    assert found.percentiles["50"] == 3
    assert found.histogram == {"<=1": 1, "<=2": 1, "<=4": 2, "<=8": 0, "<=16": 0, "<=32": 0, "<=64": 0, "<=128": 1}


@given(st.lists(st.integers(1, 70), min_size=1, max_size=60))
def test_statistics_agree_with_their_definitions(lengths: list[int]) -> None:
    found = length_statistics(Counter(lengths))
    assert sum(found.histogram.values()) == len(lengths)
    for p in PERCENTILES:
        value = found.percentiles[str(p)]
        below = sum(length < value for length in lengths)
        not_above = sum(length <= value for length in lengths)
        assert below < max(1, p / 100 * len(lengths)) <= max(1, not_above) + 1e-9


REPORT = PlanReport(
    run="r1",
    samples=2,
    shards=1,
    tokens=3,
    supervised_tokens=2,
    unsupervised=1,
    rejected={"bad json": 1},
    lengths=length_statistics({1: 1, 2: 1}),
    sources=(SourceReport("a.jsonl", "jsonl", 10, "ab", 2),),
)


def test_there_and_back() -> None:
    assert PlanReport.from_json(REPORT.to_json(), "plan.json") == REPORT


@pytest.mark.parametrize("text", ["", "{}", "[]", "3", '{"lengths": {}, "sources": []}', '{"lengths": 1}'])
def test_damage_is_named(text: str) -> None:
    with pytest.raises(RunDamaged, match=r"plan\.json is damaged"):
        PlanReport.from_json(text, "plan.json")
