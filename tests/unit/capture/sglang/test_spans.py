from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hscapture.rows import Extend
from hscapture.sglang.spans import Span, require_rows, take, wanted_spans
from hsqueue.contracts.errors import DumpMalformed

BATCHES = st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=8).filter(
    lambda batch: any(wanted for _, wanted in batch)
)


def batch_of(sizes: list[tuple[int, bool]]) -> list[Extend]:
    return [Extend(str(k), rows, 0, wanted, True) for k, (rows, wanted) in enumerate(sizes)]


@given(BATCHES)
def test_exactly_the_wanted_rows_are_taken_in_order(sizes: list[tuple[int, bool]]) -> None:
    owners = torch.tensor([k for k, (rows, _) in enumerate(sizes) for _ in range(rows)])
    expected = [k for k, (rows, wanted) in enumerate(sizes) if wanted for _ in range(rows)]
    assert take(owners, wanted_spans(batch_of(sizes))).tolist() == expected


def test_neighbours_are_one_span_and_one_span_is_not_copied() -> None:
    spans = wanted_spans(batch_of([(2, False), (1, True), (3, True), (1, False)]))
    assert spans == [Span(2, 6)]
    rows = torch.arange(7)
    assert take(rows, spans).data_ptr() == rows[2:].data_ptr()


def test_padding_behind_the_batch_is_allowed_and_nothing_else() -> None:
    batch = batch_of([(2, True), (3, False)])
    require_rows(batch, torch.zeros(5), torch.zeros(5, 4))
    require_rows(batch, torch.zeros(8), torch.zeros(8, 4))
    for ids, rows in ((4, 4), (5, 8), (8, 5)):
        with pytest.raises(DumpMalformed, match=f"5 rows .* found {rows} and {ids}"):
            require_rows(batch, torch.zeros(ids), torch.zeros(rows, 4))
