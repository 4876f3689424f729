"""The default model, built once for this session, plain and behind the engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hsengine import tiny
from hsengine.model import Model, load_model, read_info

LAYERS = (2, 4, 5, 8)


@pytest.fixture(scope="session")
def tiny_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "tiny"
    directory.mkdir()
    tiny.build(directory)
    return directory


@pytest.fixture(scope="session")
def model(tiny_directory: Path) -> Model:
    return load_model(read_info(tiny_directory, "float32"), LAYERS, "both")


@pytest.fixture(scope="session")
def plain(tiny_directory: Path) -> Callable[[list[int]], tuple[torch.Tensor, ...]]:
    """``hidden_states`` [S, H] of a prompt by transformers alone, the last one after the final norm."""
    from transformers import AutoModelForCausalLM

    reference: Any = AutoModelForCausalLM.from_pretrained(tiny_directory, attn_implementation="sdpa").eval()
    return lambda ids: plain_states(reference, ids)


@torch.inference_mode()
def plain_states(module: Any, ids: list[int]) -> tuple[torch.Tensor, ...]:
    output = module(torch.tensor([ids]), output_hidden_states=True)
    return tuple(states[0] for states in output.hidden_states)
