"""What one forward pass holds for the requests that want it, from the arguments of SGLang's logits processor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from hscapture.finite import finite_flags
from hscapture.rows import Extend, States
from hscapture.sglang.decoder import inner
from hscapture.sglang.spans import Span, require_rows, take, wanted_spans
from hscapture.sglang.taps import Tap
from hsqueue.contracts.errors import DumpMalformed


@dataclass(frozen=True, slots=True, eq=False)
class Recipe:
    """What to take of every pass. layers: inputs of layers, ascending. norm: ``post``, ``pre`` or ``both``.
    scale: what the model divides the last state by before its head. first, final: taps of layer 0's input and
    of the final norm's.
    """

    layers: tuple[int, ...]
    num_layers: int
    norm: str
    scale: float | None
    first: Tap
    final: Tap

    @property
    def taps(self) -> list[Tap]:
        """Those whose states are needed."""
        needs_final = self.norm in ("pre", "both") or self.num_layers in self.layers
        return [tap for tap, needed in ((self.first, 0 in self.layers), (self.final, needs_final)) if needed]


def wanted_states(
    recipe: Recipe,
    batch: Sequence[Extend],
    input_ids: torch.Tensor,
    hidden: torch.Tensor,
    aux: torch.Tensor | Sequence[torch.Tensor] | None,
) -> States:
    """The rows of the requests of `batch` that want capture, in tensors of their own, still on their device.

    input_ids: [T]. hidden: [T, H] after the final norm. aux: A tensors [T, H], or one [T, A*H]; T rows of the batch
    with or without padding behind. Raises DumpMalformed where any of it is not so.
    """
    require_rows(batch, input_ids, hidden)
    spans = wanted_spans(batch)
    rows = hidden.shape[0]
    first, final = recipe.first.take(), recipe.final.take()
    parts = [take(part, spans) for part in _auxiliary(recipe, rows, hidden.shape[1], aux, first, final)]
    states = torch.cat(parts, dim=-1)
    prenorm = None
    if recipe.norm in ("pre", "both"):
        prenorm = take(_tapped(final, rows, "before the final norm"), spans)
    last = _last(recipe, hidden, spans) if recipe.norm in ("post", "both") else None
    return States(
        # SGLang's buffer is used again by the next batch.
        input_ids=take(input_ids, spans).to(torch.int64, copy=True),
        aux=states,
        last=last,
        prenorm=prenorm,
        finite=finite_flags(states, len(recipe.layers), last, prenorm),
    )


def _last(recipe: Recipe, hidden: torch.Tensor, spans: Sequence[Span]) -> torch.Tensor:
    last = take(hidden, spans)
    return last.clone() if recipe.scale is None else last * recipe.scale


def _auxiliary(
    recipe: Recipe,
    rows: int,
    width: int,
    aux: torch.Tensor | Sequence[torch.Tensor] | None,
    first: torch.Tensor | None,
    final: torch.Tensor | None,
) -> list[torch.Tensor]:
    """The auxiliary layers side by side: each [T, H], or several in one tensor."""
    between = len(inner(recipe.layers, recipe.num_layers))
    parts = [] if aux is None else [aux] if isinstance(aux, torch.Tensor) else list(aux)
    found = [tuple(part.shape) for part in parts]
    if sum(shape[-1] for shape in found) != between * width or any(shape[0] != rows for shape in found):
        raise DumpMalformed(
            "a forward pass without its auxiliary states",
            expected=f"{between} times [{rows}, {width}]",
            found=found,
        )
    if 0 in recipe.layers:
        parts.insert(0, _tapped(first, rows, "of layer 0"))
    if recipe.num_layers in recipe.layers:
        parts.append(_tapped(final, rows, "of the last layer"))
    return parts


def _tapped(tensor: torch.Tensor | None, rows: int, what: str) -> torch.Tensor:
    if tensor is None or tensor.shape[0] != rows:
        raise DumpMalformed(
            f"a forward pass did not show the states {what}",
            expected=f"{rows} rows",
            found="none" if tensor is None else tensor.shape[0],
            do="Start the server without CUDA graphs for prefill; replayed graphs run no hooks.",
        )
    return tensor
