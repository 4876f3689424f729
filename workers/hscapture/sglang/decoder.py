"""The decoder stack inside a model, and which layers it was told to capture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from torch import nn

from hsqueue.contracts.errors import EngineUnfit

NORM_NAMES = ("norm", "final_layernorm", "norm_f", "ln_f")
HOW_TO_NAME = "Serve a model whose SGLang class has set_eagle3_layers_to_capture."


@dataclass(frozen=True, slots=True, eq=False)
class Decoder:
    """layers: the decoder layers in order. norm: the final one."""

    layers: nn.ModuleList
    norm: nn.Module


@dataclass(frozen=True, slots=True)
class Capture:
    """asked: ids as handed to the model, in its own convention; empty where nothing had to be asked.
    held: ids as the model object then held them, which are inputs of layers.
    """

    asked: tuple[int, ...]
    held: tuple[int, ...]


def find_decoder(model: nn.Module, num_layers: int, hidden_size: int) -> Decoder:
    """The first module that holds `num_layers` layers and a final norm of `hidden_size`. Raises EngineUnfit."""
    for module in model.modules():
        layers = getattr(module, "layers", None)
        if not isinstance(layers, nn.ModuleList) or len(layers) != num_layers:
            continue
        for name in NORM_NAMES:
            norm = getattr(module, name, None)
            weight = getattr(norm, "weight", None)
            if isinstance(norm, nn.Module) and (weight is None or weight.shape[-1] == hidden_size):
                return Decoder(layers, norm)
    raise EngineUnfit(f"{type(model).__name__} has no stack of {num_layers} layers with a final norm", do=HOW_TO_NAME)


def arm(model: nn.Module, layers: tuple[int, ...], num_layers: int, *, default: bool) -> Capture:
    """Makes the model return the inputs of those of `layers` that lie between its layers: 1 to ``num_layers - 1``.

    Most models store an explicit id plus one, some as it is, some either way by a rule of their own; what counts
    is what the model holds afterwards. default: `layers` are the model's own default. Raises EngineUnfit where the
    model captures nothing or nothing but other layers.
    """
    wanted = inner(layers, num_layers)
    if not wanted:
        return Capture((), ())
    setter = getattr(model, "set_eagle3_layers_to_capture", None)
    if not callable(setter):
        raise EngineUnfit(f"{type(model).__name__} cannot capture auxiliary layers", do=HOW_TO_NAME)
    held: tuple[int, ...] = ()
    for asked in [None] if default else [[k - 1 for k in wanted], list(wanted)]:
        setter(asked)
        held = held_layers(model)
        if held == wanted:
            return Capture(wanted if asked is None else tuple(asked), held)
    raise EngineUnfit(
        f"{type(model).__name__} does not capture the layers that it was asked for",
        expected=f"{list(wanted)} held",
        found=list(held),
        do="Choose other layers with HSQ_LAYERS.",
    )


def inner(layers: Sequence[int], num_layers: int) -> tuple[int, ...]:
    """Those layers whose input is another layer's output; the first input and the last output are taken by hooks."""
    return tuple(k for k in layers if 0 < k < num_layers)


def held_layers(model: nn.Module) -> tuple[int, ...]:
    """What the model object says it captures, ascending; empty where it says nothing."""
    for module in model.modules():
        held = getattr(module, "layers_to_capture", None)
        if held:
            return tuple(sorted(cast(Any, held)))
    return ()
