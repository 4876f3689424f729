"""Tiny models with random float32 weights that both SGLang and transformers load."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

VOCABULARY = 2048
LAYERS = 8
DENSE: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": LAYERS,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 4096,
    "bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.2, "tie_word_embeddings": False,
}  # fmt: skip


def llama() -> Any:
    return LlamaForCausalLM(LlamaConfig(**DENSE))


def qwen3() -> Any:
    return Qwen3ForCausalLM(Qwen3Config(**DENSE))


def qwen3_moe() -> Any:
    config = Qwen3MoeConfig(**DENSE, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64)
    return Qwen3MoeForCausalLM(config)


def gpt2() -> Any:
    """A model that SGLang serves and cannot capture from."""
    config = GPT2Config(
        vocab_size=VOCABULARY, n_embd=128, n_layer=LAYERS, n_head=4, n_positions=1024, bos_token_id=1, eos_token_id=2
    )
    return GPT2LMHeadModel(config)


def make(build: Callable[[], Any], directory: Path) -> Path:
    """Saves a model of seed 0 and a tokenizer of one word a token to `directory`."""
    torch.manual_seed(0)
    model = build().to(torch.float32)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            # Weights of one would hide a norm that is applied once too often.
            parameter.data.uniform_(0.5, 1.5)
    model.save_pretrained(directory)
    words = {("<unk>", "<s>", "</s>")[k] if k < 3 else f"<t{k}>": k for k in range(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    ).save_pretrained(directory)
    return directory
