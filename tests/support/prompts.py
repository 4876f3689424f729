"""Prompts for tests, and what must come out of them."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hsqueue.cli.options import default_model
from hsqueue.contracts.dump import AUX, INPUT_IDS, LAST
from hsqueue.planning.plan import load_run
from hsqueue.planning.shards import read_shard
from hsqueue.store.layout import RunLayout

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "gsm8k-256.jsonl"
TINY_VOCABULARY = 4096
FIRST_ORDINARY_ID = 16
"""Below it are the tiny tokenizer's special tokens."""


def conversations(path: Path, count: int) -> Path:
    """The first `count` of the example conversations."""
    path.write_text("".join(EXAMPLES.read_text().splitlines(keepends=True)[:count]))
    return path


def token_prompts(path: Path, lengths: Sequence[int], seed: int = 0) -> Path:
    """Random token ids, one prompt for each of `lengths`."""
    dice = random.Random(seed)
    with path.open("w") as file:
        for k, length in enumerate(lengths):
            ids = [dice.randrange(FIRST_ORDINARY_ID, TINY_VOCABULARY) for _ in range(length)]
            file.write(json.dumps({"id": f"p{k}", "input_ids": ids}) + "\n")
    return path


def half_alike(count: int, common: int = 32, seed: int = 0) -> list[int]:
    """`count` lengths of which half are `common` and the others are spread."""
    dice = random.Random(seed)
    lengths = [common if k % 2 else dice.randrange(3, 200) for k in range(count)]
    dice.shuffle(lengths)
    return lengths


class Reference:
    """Lone float32 forward passes of the tiny model by transformers."""

    def __init__(self) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        self.torch = torch
        self.model = AutoModelForCausalLM.from_pretrained(
            default_model(), dtype=torch.float32, attn_implementation="sdpa", local_files_only=True
        ).eval()

    def states(self, ids: Sequence[int], layers: Sequence[int]) -> tuple[Any, Any]:
        """(aux [S, A*H], last [S, H])."""
        with self.torch.inference_mode():
            out = self.model(self.torch.tensor([list(ids)]), output_hidden_states=True, use_cache=False)
        aux = self.torch.cat([out.hidden_states[k][0] for k in layers], dim=-1)
        return aux, out.hidden_states[-1][0]


def wrong_samples(root: Path, reference: Reference, tolerance: float = 1e-3) -> list[str]:
    """Every published file of the run in `root` whose ids are not the plan's or whose states are not its ids'."""
    from safetensors.torch import load_file

    info, layout = load_run(root), RunLayout(root)
    layers = info.fingerprint.target.layers
    wrong = []
    for shard in range(info.shards):
        for sample in read_shard(layout.plan_shard(shard)):
            path = layout.sample(shard, sample.index)
            if not path.exists():
                continue
            stored = load_file(path)
            if stored[INPUT_IDS].tolist() != sample.input_ids.tolist():
                wrong.append(f"{path}: other token ids")
                continue
            aux, last = reference.states(sample.input_ids, layers)
            worst = max(float((stored[AUX] - aux).abs().max()), float((stored[LAST] - last).abs().max()))
            if worst > tolerance:
                wrong.append(f"{path}: states off by {worst:.3g}")
    return wrong


def published(root: Path) -> set[int]:
    """Indices of the samples whose files stand under their final names."""
    return {int(path.stem) for path in root.glob("samples/*/*/[0-9]*.safetensors")}
