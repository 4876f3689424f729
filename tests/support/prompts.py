"""Prompts for tests, and what must come out of them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
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
    """Float32 forward passes of the tiny model by transformers.

    With one thread, as the engine has: several may sum in another order, and on a busy machine wait for each other.
    """

    def __init__(self) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(1)
        self.torch = torch
        self.model = AutoModelForCausalLM.from_pretrained(
            default_model(), dtype=torch.float32, attn_implementation="sdpa", local_files_only=True
        ).eval()

    def states(self, ids: Sequence[int], layers: Sequence[int]) -> tuple[Any, Any]:
        """(aux [S, A*H], last [S, H])."""
        return self.alike([ids], layers)[0]

    def alike(self, prompts: Sequence[Sequence[int]], layers: Sequence[int]) -> list[tuple[Any, Any]]:
        """The same for several prompts of one length, in one pass without padding."""
        with self.torch.inference_mode():
            out = self.model(self.torch.tensor([list(p) for p in prompts]), output_hidden_states=True, use_cache=False)
        aux = self.torch.cat([out.hidden_states[k] for k in layers], dim=-1)
        return list(zip(aux, out.hidden_states[-1], strict=True))


def wrong_samples(root: Path, reference: Reference, tolerance: float = 1e-3) -> list[str]:
    """Every published file of the run in `root` whose ids are not the plan's or whose states are not its ids'."""
    layers = load_run(root).fingerprint.target.layers
    return [
        wrong
        for batch in _batches(root)
        for (path, ids), states in zip(batch, reference.alike([ids for _, ids in batch], layers), strict=True)
        if (wrong := _unlike(path, ids, states, tolerance))
    ]


def _batches(root: Path, most: int = 32) -> Iterator[list[tuple[Path, list[int]]]]:
    """(file, planned token ids) of every published sample, those of one length together."""
    info, layout = load_run(root), RunLayout(root)
    waiting: dict[int, list[tuple[Path, list[int]]]] = {}
    for shard in range(info.shards):
        for sample in read_shard(layout.plan_shard(shard)):
            path = layout.sample(shard, sample.index)
            if path.exists():
                waiting.setdefault(sample.tokens, []).append((path, sample.input_ids.tolist()))
                if len(waiting[sample.tokens]) == most:
                    yield waiting.pop(sample.tokens)
    yield from waiting.values()


def _unlike(path: Path, ids: list[int], states: tuple[Any, Any], tolerance: float) -> str:
    from safetensors.torch import load_file

    stored = load_file(path)
    if stored[INPUT_IDS].tolist() != ids:
        return f"{path}: other token ids"
    worst = max(float((stored[name] - tensor).abs().max()) for name, tensor in zip((AUX, LAST), states, strict=True))
    return "" if worst <= tolerance else f"{path}: states off by {worst:.3g}"


def published(root: Path) -> set[int]:
    """Indices of the samples whose files stand under their final names."""
    return {int(path.stem) for path in root.glob("samples/*/*/[0-9]*.safetensors")}
