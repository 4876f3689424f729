"""States that no model returns by itself: what enters the first layer and what enters the final norm."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from hscapture.sglang.decoder import Decoder


class Tap:
    """Keeps one tensor of a forward pass until it is taken.

    A pass that is replayed from a CUDA graph runs no hooks; it finds nothing here rather than an older pass's states.
    """

    def __init__(self) -> None:
        self._kept: torch.Tensor | None = None
        self.wanted = False
        """Set by whoever will take; other passes cost nothing."""

    def take(self) -> torch.Tensor | None:
        kept, self._kept = self._kept, None
        return kept

    def keep(self, hidden: torch.Tensor, residual: torch.Tensor | None) -> None:
        """The sum as one tensor of its own, since norms add in place. hidden, residual: [T, H]."""
        if self.wanted:
            self._kept = hidden.clone() if residual is None else hidden + residual


def tap_first_layer(decoder: Decoder) -> Tap:
    """[T, H] of what enters layer 0."""
    tap = Tap()
    layer = decoder.layers[0]
    signature = inspect.signature(layer.forward)

    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = signature.bind(*args, **kwargs).arguments
        tap.keep(given["hidden_states"], given.get("residual"))

    layer.register_forward_pre_hook(before, with_kwargs=True)
    return tap


def tap_final_norm(decoder: Decoder) -> Tap:
    """[T, H] of what enters the final norm, its residual added."""
    tap = Tap()

    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = [*args, *kwargs.values()]
        tap.keep(given[0], given[1] if len(given) > 1 else None)

    decoder.norm.register_forward_pre_hook(before, with_kwargs=True)
    return tap
