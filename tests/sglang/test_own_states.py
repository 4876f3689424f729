"""A dump holds the very numbers that SGLang computed, whatever transformers makes of the same weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hsqueue.contracts.dump import LAST
from tests.sglang import models
from tests.sglang.probe import RETURNS, Prober, prompt
from tests.sglang.server import sglang_server

Model = Callable[[Callable[[], Any]], Path]


@pytest.mark.parametrize("build", [models.llama, models.qwen3_moe], ids=lambda build: build.__name__)
def test_the_last_states_are_what_sglang_returns(model: Model, tmp_path: Path, build: Callable[[], Any]) -> None:
    # Layer 0's input is taken without the model's help. A model that keeps layers returns these in place of its last.
    with sglang_server(model(build), tmp_path, RETURNS, settings={"HSQ_LAYERS": "0"}) as server:
        dumped, returned = Prober(server).fetch_with_own(prompt(0, 40))
    assert torch.equal(dumped[LAST], returned)
