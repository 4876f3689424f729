"""Which requests' tokens go into the next forward pass: decisions only, on plain numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """prefill_tokens: rows of one forward pass. chunk: rows of one prompt in one pass.
    max_running: requests that may hold keys and values at a time.
    """

    prefill_tokens: int = 1024
    chunk: int = 1024
    max_running: int = 64


def plan_prefill(waiting: Sequence[tuple[int, int]], budget: int) -> list[int]:
    """Rows for the first requests of the queue, in its order; shorter than the queue where the pass is full.

    waiting: ``(remaining tokens, most rows in one pass)`` of each request. A piece that does not fit into
    what is left of the pass waits for the next one, rather than be split to fill this one; only a piece
    larger than a whole pass is cut.
    """
    rows: list[int] = []
    left = budget
    for remaining, most in waiting:
        piece = min(remaining, most, budget)
        if piece > left:
            break
        rows.append(piece)
        left -= piece
    return rows
