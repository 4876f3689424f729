"""The default model: a tiny Llama with fixed random weights, complete enough for any Hugging Face reader.

The weights come from SHAKE-256, so they are the same bytes on every machine and under every version of
Python, NumPy and torch; no library's generator is involved. This module needs the standard library only.
"""

from __future__ import annotations

import array
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from math import prod, sqrt
from pathlib import Path

from hsqueue.contracts.tensorfile import build_header, layout

NAME = "hsqueue-tiny-llama-v1"
"""Part of the cache path: a change of the weights, the shape or the tokenizer needs another name."""
STANDARD_DEVIATION = 0.2
"""Of every weight matrix; large enough that the states of different prompts are plainly different."""
TOKENIZER = Path(__file__).parent / "assets" / "tokenizer"

CONFIG: dict[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 4096,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 8,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 4096,
    "initializer_range": STANDARD_DEVIATION,
    "rms_norm_eps": 1e-06,
    "rope_theta": 10000.0,
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": False,
    "use_cache": True,
    "bos_token_id": None,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "torch_dtype": "float32",
}


def shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    """``(name, shape)`` of every tensor, in file order."""
    hidden, inner, vocabulary, layers, heads, kv_heads, head = (
        int(str(CONFIG[key]))
        for key in (
            "hidden_size", "intermediate_size", "vocab_size", "num_hidden_layers",
            "num_attention_heads", "num_key_value_heads", "head_dim",
        )
    )  # fmt: skip
    yield "model.embed_tokens.weight", (vocabulary, hidden)
    for k in range(layers):
        layer = f"model.layers.{k}."
        yield layer + "self_attn.q_proj.weight", (heads * head, hidden)
        yield layer + "self_attn.k_proj.weight", (kv_heads * head, hidden)
        yield layer + "self_attn.v_proj.weight", (kv_heads * head, hidden)
        yield layer + "self_attn.o_proj.weight", (hidden, heads * head)
        yield layer + "mlp.gate_proj.weight", (inner, hidden)
        yield layer + "mlp.up_proj.weight", (inner, hidden)
        yield layer + "mlp.down_proj.weight", (hidden, inner)
        yield layer + "input_layernorm.weight", (hidden,)
        yield layer + "post_attention_layernorm.weight", (hidden,)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (vocabulary, hidden)


def weights(name: str, count: int) -> bytes:
    """Little-endian float32 [count]: ones for a norm, else uniform with mean 0 and STANDARD_DEVIATION."""
    if name.endswith("norm.weight"):
        values = array.array("f", [1.0]) * count
    else:
        noise = array.array("i", hashlib.shake_256(f"{NAME}:{name}".encode()).digest(4 * count))
        if sys.byteorder == "big":
            noise.byteswap()
        scale = STANDARD_DEVIATION * sqrt(3.0) / 2**31
        values = array.array("f", [integer * scale for integer in noise])
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def build(directory: Path) -> None:
    """Writes a complete model directory: configuration, weights, tokenizer, chat template."""
    tensors = layout((name, "F32", shape) for name, shape in shapes())
    with (directory / "model.safetensors").open("wb") as file:
        file.write(build_header(tensors, {"format": "pt"}))
        for tensor in tensors:
            file.write(weights(tensor.name, prod(tensor.shape)))
    (directory / "config.json").write_text(json.dumps(CONFIG, indent=1) + "\n", encoding="utf-8")
    for asset in sorted(TOKENIZER.iterdir()):
        shutil.copyfile(asset, directory / asset.name)


def cache_root() -> Path:
    """``$HSQ_MODEL_CACHE``, or ``~/.cache/hsqueue/models`` (under ``$XDG_CACHE_HOME`` where that is set)."""
    if configured := os.environ.get("HSQ_MODEL_CACHE"):
        return Path(configured)
    caches = os.environ.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else Path.home() / ".cache") / "hsqueue" / "models"


def model_directory() -> Path:
    """The default model's directory, made on first use; several processes may make it at once."""
    final = cache_root() / NAME
    if final.is_dir():
        return final
    final.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{NAME}-", dir=final.parent))
    try:
        build(temporary)
        temporary.chmod(0o755)
        temporary.rename(final)
    except OSError:
        if not final.is_dir():
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return final
