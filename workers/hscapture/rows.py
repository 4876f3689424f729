"""One forward pass cut into its requests' rows.

A forward pass computes the new tokens of all requests of a batch as one flat sequence of T rows, in the
order of the batch. Each request owns as many rows as it extends by, whether or not anybody wants its
states; an offset that skipped the others would hand every later request its neighbour's rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from hsqueue.contracts.errors import DumpMalformed


@dataclass(frozen=True, slots=True)
class Extend:
    """What one request contributes to a forward pass, under SGLang's names.

    extend_len: rows. prefix_len: tokens of the prompt whose keys and values existed before this pass.
    is_last_chunk: no further rows of this prompt are to come.
    """

    rid: str
    extend_len: int
    prefix_len: int
    wants_capture: bool
    is_last_chunk: bool


@dataclass(frozen=True, slots=True, eq=False)
class States:
    """Rows of captured tensors; any of them may be a view into a larger buffer.

    input_ids: int64 [T]. aux: [T, A*H]. last: [T, H] after the final norm, or None where not captured.
    prenorm: [T, H] before it, or None. finite: bool [T, A + 1 or 2], see ``finite.finite_flags``.
    """

    input_ids: torch.Tensor
    aux: torch.Tensor
    last: torch.Tensor | None
    prenorm: torch.Tensor | None
    finite: torch.Tensor

    @property
    def tokens(self) -> int:
        return self.input_ids.shape[0]

    @property
    def nbytes(self) -> int:
        return sum(t.nbytes for t in (self.input_ids, self.aux, self.last, self.prenorm) if t is not None)

    def rows(self, begin: int, end: int) -> States:
        """Views of rows ``begin`` to ``end - 1``; nothing is copied."""
        return States(
            self.input_ids[begin:end],
            self.aux[begin:end],
            None if self.last is None else self.last[begin:end],
            None if self.prenorm is None else self.prenorm[begin:end],
            self.finite[begin:end],
        )


def nothing() -> None:
    """For states that are ready at once and need no giving back."""


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """One request's rows of one forward pass.

    ready: returns when the states may be read (a copy from a device may be under way).
    release: called once, when the states are needed no more; their buffer may then be used again.
    """

    rid: str
    prefix_len: int
    is_last_chunk: bool
    states: States
    ready: Callable[[], None] = nothing
    release: Callable[[], None] = nothing


def split(batch: Sequence[Extend], states: States) -> list[Piece]:
    """The pieces of those requests that want capture, in the order of the batch.

    Raises DumpMalformed where the batch and the captured rows do not add up; no row is attributable then.
    """
    total = sum(extend.extend_len for extend in batch)
    if total != states.tokens:
        raise DumpMalformed(
            "a forward pass holds another number of rows than its batch", expected=total, found=states.tokens
        )
    pieces, offset = [], 0
    for extend in batch:
        end = offset + extend.extend_len
        if extend.wants_capture:
            pieces.append(Piece(extend.rid, extend.prefix_len, extend.is_last_chunk, states.rows(offset, end)))
        offset = end
    return pieces
