"""Attention over a packed batch: every request attends to its own tokens, and to nothing else.

The new tokens of all requests of a forward pass lie behind one another in a batch of one. Instead of one
mask over all of them, quadratic in the pass, each request's slice goes through transformers' own scaled
dot-product attention by itself, with its past keys and values before it. A prompt that is computed whole
takes the same path, without a mask, as in a plain forward of the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, AttentionInterface

from hsqueue.contracts.errors import EngineUnfit

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "hsengine_packed"
PLAIN = "sdpa"
UNSUPPORTED = ("softcap", "s_aux", "position_bias")
"""Arguments by which models ask for an attention that is not plain scaled dot-product attention."""


class KeyValues:
    """Past keys and values of one request, per layer [1, kv heads, capacity, head size], filled in place.

    capacity: tokens of prompt and completion together. length: tokens held; advanced once a pass.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.length = 0
        self._layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def extend(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Stores a pass's new keys and values [1, kv heads, n, head size] and returns all up to them."""
        if layer not in self._layers:
            self._layers[layer] = (_room(key, self.capacity), _room(value, self.capacity))
        keys, values = self._layers[layer]
        end = self.length + key.shape[2]
        keys[:, :, self.length : end] = key
        values[:, :, self.length : end] = value
        return keys[:, :, :end], values[:, :, :end]


def _room(like: torch.Tensor, capacity: int) -> torch.Tensor:
    return like.new_empty((like.shape[0], like.shape[1], capacity, like.shape[3]))


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One request's new tokens in a forward pass.

    kv: its past, or None for a prompt computed whole of which nothing is needed afterwards.
    """

    input_ids: Sequence[int]
    kv: KeyValues | None = None

    @property
    def position(self) -> int:
        """Tokens of the request that lie before these."""
        return 0 if self.kv is None else self.kv.length


@dataclass(slots=True, eq=False)
class Step:
    """The layout that the attention of the running pass must know. calls: attention layers run so far."""

    parts: Sequence[Part]
    calls: int = 0
    masks: dict[tuple[int, int, int | None], torch.Tensor | None] = field(default_factory=dict)


_STEP: ContextVar[Step] = ContextVar("step")


@contextmanager
def running(step: Step) -> Iterator[None]:
    """Makes `step` the pass that attention layers on this thread belong to."""
    token = _STEP.set(step)
    try:
        yield
    finally:
        _STEP.reset(token)


def causal_mask(rows: int, past: int, window: int | None) -> torch.Tensor | None:
    """Bool [rows, past + rows], true where a row may look; None where no mask is needed.

    window: how many tokens back a row sees, itself included, or None for all.
    """
    inside = window is None or past + rows <= window
    if inside and (past == 0 or rows == 1):
        return None
    query = torch.arange(past, past + rows).unsqueeze(1)
    key = torch.arange(past + rows).unsqueeze(0)
    seen = key <= query
    if window is not None:
        seen &= key > query - window
    return seen


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Under transformers' attention interface. query: [1, heads, T, head size]; key, value: [1, kv heads, T, ..].

    Returns [1, T, heads, head size]. attention_mask is what a model would use for the pass as one sequence.
    Raises EngineUnfit for a model whose attention is of another kind.
    """
    del attention_mask
    for name in UNSUPPORTED:
        if kwargs.get(name) is not None:
            raise unfit(f"attention with {name}")
    step = _STEP.get()
    step.calls += 1
    window = kwargs.get("sliding_window")
    layer = getattr(module, "layer_idx", step.calls)
    plain = ALL_ATTENTION_FUNCTIONS[PLAIN]
    outputs, begin = [], 0
    for part in step.parts:
        rows = len(part.input_ids)
        q, k, v = (t[:, :, begin : begin + rows] for t in (query, key, value))
        past = part.position
        if part.kv is not None:
            k, v = part.kv.extend(layer, k, v)
        mask = _mask(step, rows, past, window)
        outputs.append(plain(module, q, k, v, mask, **kwargs)[0])
        begin += rows
    return (outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)), None


def _mask(step: Step, rows: int, past: int, window: int | None) -> torch.Tensor | None:
    identity = (rows, past, window)
    if identity not in step.masks:
        mask = causal_mask(rows, past, window)
        step.masks[identity] = None if mask is None else mask[None, None]
    return step.masks[identity]


def unfit(what: str) -> EngineUnfit:
    """The error for a model that this engine cannot run."""
    return EngineUnfit(
        f"the embedded engine cannot run this model ({what})",
        do="Serve it with SGLang and name the server with --engine URL.",
    )


AttentionInterface.register(NAME, packed_attention)
