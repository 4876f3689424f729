"""Which rows of a forward pass leave the device: those of the requests that want capture, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from hscapture.rows import Extend
from hsqueue.contracts.errors import DumpMalformed


@dataclass(frozen=True, slots=True)
class Span:
    """Rows ``begin`` to ``end - 1``."""

    begin: int
    end: int


def wanted_spans(batch: Sequence[Extend]) -> list[Span]:
    """The rows of the requests that want capture; every request moves the offset. Neighbours are one span."""
    spans: list[Span] = []
    offset = 0
    for extend in batch:
        end = offset + extend.extend_len
        if extend.wants_capture:
            if spans and spans[-1].end == offset:
                spans[-1] = Span(spans[-1].begin, end)
            else:
                spans.append(Span(offset, end))
        offset = end
    return spans


def require_rows(batch: Sequence[Extend], input_ids: torch.Tensor, hidden: torch.Tensor) -> None:
    """Raises DumpMalformed unless the pass holds the batch's rows, which padding may follow."""
    total = sum(extend.extend_len for extend in batch)
    if input_ids.shape[0] != hidden.shape[0] or hidden.shape[0] < total:
        raise DumpMalformed(
            "a forward pass holds other rows than its batch",
            expected=f"{total} rows of states and of token ids",
            found=f"{hidden.shape[0]} and {input_ids.shape[0]}",
        )


def take(tensor: torch.Tensor, spans: Sequence[Span]) -> torch.Tensor:
    """The rows of `spans`, one behind the other; a view where they are one span."""
    if len(spans) == 1:
        return tensor[spans[0].begin : spans[0].end]
    return torch.cat([tensor[span.begin : span.end] for span in spans])
