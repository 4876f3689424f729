"""The main job against two real servers: two workers, one of them beside each."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from hsqueue.contracts.dump import AUX, INPUT_IDS, LAST
from tests.sglang import models
from tests.sglang.probe import AUX_BAR, LAST_BAR, Reference, prompt
from tests.sglang.server import Server, sglang_server
from tests.support.cli import hsqueue

SAMPLES = 120


def write_prompts(path: Path) -> Path:
    lines = []
    for k in range(SAMPLES):
        ids = prompt(k, 5 + 7 * k % 300)
        lines.append(json.dumps({"id": f"s{k}", "input_ids": ids, "loss_mask": [1] * len(ids)}))
    path.write_text("\n".join(lines) + "\n")
    return path


def places(*servers: Server) -> list[str]:
    return [word for one in servers for word in ("--engine", one.url, "--dump-dir", str(one.dump_dir))]


def test_a_run_on_two_servers_is_complete_and_right(model: Callable[[Callable[[], Any]], Path], tmp_path: Path) -> None:
    directory, out = model(models.llama), tmp_path / "run"
    with sglang_server(directory, tmp_path / "a") as first, sglang_server(directory, tmp_path / "b") as second:
        checked = hsqueue("doctor", *places(first))
        assert "a probe's dump came through" in checked.text
        prompts = write_prompts(tmp_path / "prompts.jsonl")
        ran = hsqueue("run", prompts, "--out", out, *places(first, second), "--shard-size", "16", "--deep")
        assert ran.status == 0, ran.text
        assert first.dumps() == second.dumps() == []
        reference, layers = Reference(first), first.card().layers
    files = sorted((out / "samples").rglob("*.safetensors"))
    assert len(files) == SAMPLES
    for path in files:
        found = load_file(path)
        aux, last, _ = reference.states(found[INPUT_IDS].tolist(), layers)
        assert torch.allclose(found[AUX], aux, rtol=0, atol=AUX_BAR)
        assert torch.allclose(found[LAST], last, rtol=0, atol=LAST_BAR)
