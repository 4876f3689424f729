"""As much of SGLang's objects as the plugin reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn


@dataclass(eq=False)
class FakeRequest:
    rid: str
    origin_input_ids: list[int]
    output_ids: list[int] = field(default_factory=list)
    to_finish: object = None
    finished_reason: object = None
    is_retracted: bool = False

    def finished(self) -> bool:
        return self.finished_reason is not None


@dataclass
class FakeBatch:
    reqs: list[FakeRequest]
    extend_lens: list[int]
    prefix_lens: list[int]


def batch_of(*requests: FakeRequest) -> FakeBatch:
    """All requests computed whole."""
    return FakeBatch(list(requests), [len(r.origin_input_ids) for r in requests], [0] * len(requests))


class Layer(nn.Module):
    def forward(self, positions: Any, hidden_states: torch.Tensor, batch: Any, residual: torch.Tensor | None) -> Any:
        return hidden_states * 2, hidden_states if residual is None else residual + hidden_states


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, hidden: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        # As a fused kernel does, the sum is left in place of the residual.
        residual += hidden
        return residual * 10, residual


class Stack(nn.Module):
    """layers_to_capture: inputs of layers, as SGLang's models hold them."""

    def __init__(self, depth: int, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(depth))
        self.norm = Norm(width)
        self.layers_to_capture: list[int] = []

    def forward(self, embedded: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        hidden, residual = embedded, None
        aux = []
        for k, layer in enumerate(self.layers):
            if k in self.layers_to_capture:
                aux.append(hidden if residual is None else hidden + residual)
            hidden, residual = layer(None, hidden, None, residual)
        return self.norm(hidden, residual)[0], aux


class FakeModel(nn.Module):
    """convention: what is added to an explicit id before it is stored, 1 in most models."""

    def __init__(self, depth: int = 8, width: int = 4, convention: int = 1) -> None:
        super().__init__()
        self.vision = nn.Module()
        self.vision.layers = nn.ModuleList(Layer() for _ in range(depth))
        self.vision.norm = Norm(width + 1)
        self.model = Stack(depth, width)
        self._depth, self._convention = depth, convention

    def set_eagle3_layers_to_capture(self, layer_ids: list[int] | None = None) -> None:
        if layer_ids is None:
            self.model.layers_to_capture = [2, self._depth // 2, self._depth - 3]
        else:
            self.model.layers_to_capture = [k + self._convention for k in layer_ids]
