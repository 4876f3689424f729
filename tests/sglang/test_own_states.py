"""A dump holds the very numbers that SGLang computed, whatever transformers makes of the same weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import requests
import torch

from hsqueue.contracts.dump import AUX, LAST
from tests.sglang import models
from tests.sglang.probe import Prober, new_rid, prompt
from tests.sglang.server import Server, sglang_server

Model = Callable[[Callable[[], Any]], Path]
IDS = prompt(0, 40)


def returned(server: Server, ids: Sequence[int]) -> torch.Tensor:
    """[S, width] of what SGLang itself returns of a lone prompt. JSON keeps every bit of a float32."""
    body = {
        "input_ids": list(ids),
        "rid": f"other-{new_rid()}",
        "return_hidden_states": True,
        "sampling_params": {"max_new_tokens": 1, "temperature": 0},
    }
    answer = requests.post(f"{server.url}/generate", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    states = torch.tensor(answer.json()["meta_info"]["hidden_states"][0], dtype=torch.float32)
    assert states.shape[0] == len(ids)
    return states


@pytest.mark.parametrize("build", [models.llama, models.qwen3_moe], ids=lambda build: build.__name__)
def test_dumps_equal_what_sglang_returns_bit_for_bit(model: Model, tmp_path: Path, build: Callable[[], Any]) -> None:
    option = "--enable-return-hidden-states"
    with sglang_server(model(build), tmp_path / "with", option) as server:
        dumped, _ = Prober(server).fetch(IDS)
        # A model that keeps auxiliary layers returns these, and not its last state.
        assert torch.equal(returned(server, IDS), dumped[AUX])
    with sglang_server(model(build), tmp_path / "without", option, settings={"HSQ_DUMP_DIR": ""}) as server:
        assert torch.equal(returned(server, IDS), dumped[LAST])
