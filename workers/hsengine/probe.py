"""Start-up proof that packed, chunked passes compute what a plain forward of the same model computes.

An architecture can differ from what the packed attention assumes in ways that no configuration tells. Such
a model is refused before it serves a request, instead of filling a data set with wrong states.
"""

from __future__ import annotations

from typing import Any

import torch

from hsengine.attention import NAME, KeyValues, Part, unfit
from hsengine.model import Model

TOLERANCE = {"float32": 1e-3, "bfloat16": 0.15, "float16": 0.02}
"""Largest difference, in parts of the largest value of a layer. Other sums in another order differ by less;
an attention that looks elsewhere differs by more than the values themselves."""


def probe(model: Model) -> float:
    """Largest relative difference found. Raises EngineUnfit beyond the tolerance.

    One prompt is computed in two chunks, the second of them behind a neighbour's whole prompt.
    """
    vocabulary = model.info.vocab_size
    prompt = [(7 * k + 3) % vocabulary for k in range(12)]
    neighbour = [(5 * k + 1) % vocabulary for k in range(4)]
    kv = KeyValues(len(prompt))
    head = model.forward([Part(prompt[:5], kv)])
    tail = model.forward([Part(neighbour), Part(prompt[5:], kv)]).rows(len(neighbour), len(neighbour) + 7)
    layers = [k for k in model.layers if k < model.info.num_layers]
    width = model.info.hidden_size
    plain = plain_states(model, prompt)
    found = []
    for column, layer in enumerate(layers):
        columns = slice(column * width, (column + 1) * width)
        packed = torch.cat([head.aux[:, columns], tail.aux[:, columns]])
        found.append(difference(packed, plain[layer]))
    if head.last is not None and tail.last is not None:
        found.append(difference(torch.cat([head.last, tail.last]), plain[-1]))
    # Unlike Python's, torch's maximum lets a NaN through, which no tolerance admits.
    worst = float(torch.tensor(found or [0.0]).max())
    if not worst <= TOLERANCE[model.info.dtype]:
        raise unfit(f"packed passes differ from a plain forward by {worst:.2g} of the largest value")
    return worst


@torch.inference_mode()
def plain_states(model: Model, prompt: list[int]) -> tuple[torch.Tensor, ...]:
    """``hidden_states`` [S, H] of each layer as transformers reports them, the last one after the final norm."""
    config: Any = model.module.config
    config._attn_implementation = model.plain_attention
    try:
        output = model.module.base_model(input_ids=torch.tensor([prompt]), use_cache=False, output_hidden_states=True)
    finally:
        config._attn_implementation = NAME
    return tuple(states[0] for states in output.hidden_states)


def difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """Largest absolute difference in parts of the largest absolute value; NaN where either holds one."""
    largest = other.float().abs().max().clamp(min=1e-6)
    return float((one.float() - other.float()).abs().max() / largest)
