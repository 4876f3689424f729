"""What ``exactness.py`` was run on: a model with random weights, and prompts of spread lengths.

    python benchmarks/exactness_inputs.py qwen3 MODEL PROMPTS [--count 2000] [--longest 8000]

qwen3: 12 layers, H = 1024. mla: DeepSeek-V3's architecture, 10 layers, H = 1024, 16 experts. Both in bfloat16. Serve
MODEL with SGLang and ``--skip-tokenizer-init``, run PROMPTS through ``hsqueue run``, then compare.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from pathlib import Path
from typing import Any

import torch
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM, Qwen3Config, Qwen3ForCausalLM

FIRST_ORDINARY_ID = 100
SHORTEST = 16


def qwen3() -> Any:
    return Qwen3ForCausalLM(Qwen3Config(
        vocab_size=32000, hidden_size=1024, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128, max_position_embeddings=40960, tie_word_embeddings=False,
        initializer_range=0.02,
    ))  # fmt: skip


def mla() -> Any:
    return DeepseekV3ForCausalLM(DeepseekV3Config(
        vocab_size=8192, hidden_size=1024, intermediate_size=2048, moe_intermediate_size=512, num_hidden_layers=10,
        num_attention_heads=16, num_key_value_heads=16, n_shared_experts=1, n_routed_experts=16,
        num_experts_per_tok=4, n_group=4, topk_group=2, first_k_dense_replace=2, kv_lora_rank=512, q_lora_rank=256,
        qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128, max_position_embeddings=8192, rope_scaling=None,
        initializer_range=0.02, tie_word_embeddings=False, routed_scaling_factor=2.5, norm_topk_prob=True,
    ))  # fmt: skip


MODELS = {"qwen3": qwen3, "mla": mla}
FOR_SGLANG = {"mla": {"moe_layer_freq": 1, "topk_method": "noaux_tc", "scoring_func": "sigmoid"}}
"""Fields that SGLang reads and that transformers leaves out of the saved configuration."""


def save(kind: str, directory: Path) -> int:
    """Writes the model; returns its vocabulary size."""
    torch.manual_seed(0)
    model = MODELS[kind]().to(torch.bfloat16)
    model.save_pretrained(directory)
    path = directory / "config.json"
    config = json.loads(path.read_text()) | FOR_SGLANG.get(kind, {}) | {"dtype": "bfloat16"}
    path.write_text(json.dumps(config, indent=1))
    return int(config["vocab_size"])


def write_prompts(path: Path, count: int, longest: int, vocabulary: int) -> None:
    """Lengths spread evenly over their logarithm; the first two are the shortest and the longest."""
    dice = random.Random(1)
    with path.open("w") as file:
        for k in range(count):
            length = round(math.exp(dice.uniform(math.log(SHORTEST), math.log(longest))))
            if k < 2:
                length = (SHORTEST, longest)[k]
            ids = [dice.randrange(FIRST_ORDINARY_ID, vocabulary) for _ in range(length)]
            file.write(json.dumps({"id": f"{k}", "input_ids": ids}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=sorted(MODELS))
    parser.add_argument("model", type=Path)
    parser.add_argument("prompts", type=Path)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--longest", type=int, default=8000)
    arguments = parser.parse_args()
    vocabulary = save(arguments.kind, arguments.model)
    write_prompts(arguments.prompts, arguments.count, arguments.longest, vocabulary)


if __name__ == "__main__":
    main()
