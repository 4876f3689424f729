from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsengine.policy import plan_prefill

QUEUES = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=1, max_size=10)


@given(QUEUES, st.integers(1, 60))
def test_a_pass_is_within_its_bounds_and_never_empty(waiting: list[tuple[int, int]], budget: int) -> None:
    rows = plan_prefill(waiting, budget)
    assert rows
    assert sum(rows) <= budget
    for (remaining, most), piece in zip(waiting, rows, strict=False):
        assert 1 <= piece <= min(remaining, most)


@given(QUEUES, st.integers(1, 60))
def test_a_prompt_that_fits_a_pass_is_never_cut(waiting: list[tuple[int, int]], budget: int) -> None:
    for (remaining, most), piece in zip(waiting, plan_prefill(waiting, budget), strict=False):
        if remaining <= min(most, budget):
            assert piece == remaining


@given(QUEUES, st.integers(1, 60))
def test_repeated_passes_compute_every_token_in_order(waiting: list[tuple[int, int]], budget: int) -> None:
    left, computed = list(waiting), 0
    while left:
        rows = plan_prefill(left, budget)
        computed += sum(rows)
        left = [(r - n, most) for (r, most), n in zip(left, rows + [0] * len(left), strict=False) if r > n]
    assert computed == sum(remaining for remaining, _ in waiting)


@pytest.mark.parametrize(
    ("waiting", "budget", "rows"),
    [
        ([(5, 100), (5, 100), (5, 100)], 12, [5, 5]),
        ([(30, 8), (4, 8)], 12, [8, 4]),
        ([(30, 100), (4, 100)], 12, [12]),
        ([(2, 100), (30, 100)], 12, [2]),
    ],
)
def test_examples(waiting: list[tuple[int, int]], budget: int, rows: list[int]) -> None:
    assert plan_prefill(waiting, budget) == rows
