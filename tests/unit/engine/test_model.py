from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hscapture.rows import States
from hsengine.attention import KeyValues, Part
from hsengine.model import Model, load_model, read_info
from hsengine.probe import difference, probe
from hsqueue.contracts.errors import EngineUnfit, UsageError
from tests.unit.engine.conftest import LAYERS, plain_states

Plain = Callable[[list[int]], tuple[torch.Tensor, ...]]
TOLERANCE = 1e-3


def prompt(seed: int, tokens: int) -> list[int]:
    chance = random.Random(seed)
    return [chance.randrange(4096) for _ in range(tokens)]


def largest_difference(states: States, expected: tuple[torch.Tensor, ...]) -> float:
    """Over the auxiliary layers that transformers reports, and the last state after the norm."""
    width = expected[0].shape[1]
    found = [
        (states.aux[:, n * width : (n + 1) * width] - expected[layer]).abs().max()
        for n, layer in enumerate(LAYERS)
        if layer < len(expected) - 1
    ]
    assert states.last is not None
    return float(torch.stack([*found, (states.last - expected[-1]).abs().max()]).max())


@pytest.mark.parametrize("tokens", [1, 2, 77, 300])
def test_a_lone_whole_prompt_is_exactly_what_transformers_computes(model: Model, plain: Plain, tokens: int) -> None:
    ids = prompt(tokens, tokens)
    states = model.forward([Part(ids)])
    assert states.input_ids.tolist() == ids
    assert largest_difference(states, plain(ids)) == 0.0


def test_the_last_layers_output_is_taken_before_the_norm(model: Model) -> None:
    states = model.forward([Part(prompt(1, 9))])
    assert states.prenorm is not None
    assert states.last is not None
    assert torch.equal(states.aux[:, -64:], states.prenorm)
    norm = model.module.base_model.norm
    assert torch.equal(norm(states.prenorm), states.last)


def test_packed_neighbours_change_nothing_that_matters(model: Model, plain: Plain) -> None:
    prompts = [prompt(k, n) for k, n in enumerate([5, 130, 1, 64])]
    states = model.forward([Part(ids) for ids in prompts])
    begin = 0
    for ids in prompts:
        assert largest_difference(states.rows(begin, begin + len(ids)), plain(ids)) <= TOLERANCE
        begin += len(ids)
    assert begin == states.tokens


def test_chunks_and_decode_steps_look_back_at_what_came_before(model: Model, plain: Plain) -> None:
    ids, neighbour = prompt(3, 60), prompt(4, 20)
    kv = KeyValues(len(ids))
    found = [model.forward([Part(ids[:1], kv)])]
    found.append(model.forward([Part(neighbour), Part(ids[1:40], kv), Part(neighbour)]).rows(20, 59))
    found += [model.forward([Part([token], kv)]) for token in ids[40:]]
    assert kv.length == len(ids)
    whole = States(*(torch.cat([getattr(s, name) for s in found]) for name in States.__slots__))
    assert whole.input_ids.tolist() == ids
    assert largest_difference(whole, plain(ids)) <= TOLERANCE


def test_greedy_tokens_are_the_models_own(model: Model) -> None:
    ids = prompt(5, 12)
    model.forward([Part(prompt(6, 7)), Part(ids)])
    head = model.module.get_output_embeddings()
    alone = model.forward([Part(ids)])
    assert alone.last is not None
    expected = int(head(alone.last[-1].clone()).argmax())
    model.forward([Part(prompt(6, 7)), Part(ids)])
    assert model.next_tokens([18]) == [expected]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_probe_finds_packed_passes_right(tiny_directory: Path, dtype: str) -> None:
    worst = probe(load_model(read_info(tiny_directory, dtype), LAYERS, "post"))
    assert worst < (1e-5 if dtype == "float32" else 0.05)


def test_a_nan_is_no_small_difference() -> None:
    assert not difference(torch.tensor([float("nan")]), torch.tensor([1.0])) <= 1.0


def saved(config: Any, directory: Path) -> Path:
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(directory)
    return directory


SMALL = {
    "vocab_size": 4096, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 512,
    "initializer_range": 0.2, "pad_token_id": 0,
}  # fmt: skip


def test_sliding_windows_are_kept_whole_chunked_and_packed(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, Qwen2Config

    config = Qwen2Config(**SMALL, use_sliding_window=True, sliding_window=16, max_window_layers=2)
    directory = saved(config, tmp_path)
    model = load_model(read_info(directory, "float32"), (1, 3), "post")
    reference = AutoModelForCausalLM.from_pretrained(directory, attn_implementation="sdpa").eval()
    ids = prompt(8, 50)
    expected = plain_states(reference, ids)

    def off(states: States) -> float:
        assert states.last is not None
        return float(max((states.aux[:, 32:] - expected[3]).abs().max(), (states.last - expected[-1]).abs().max()))

    assert off(model.forward([Part(ids)])) <= 1e-4
    kv = KeyValues(len(ids))
    chunks = [
        model.forward([Part(ids[a:b], kv), Part([1, 2])]).rows(0, b - a) for a, b in ((0, 20), (20, 21), (21, 50))
    ]
    last = [states.last for states in chunks if states.last is not None]
    whole = States(
        input_ids=torch.tensor(ids),
        aux=torch.cat([states.aux for states in chunks]),
        last=torch.cat(last),
        prenorm=None,
        finite=torch.cat([states.finite for states in chunks]),
    )
    assert off(whole) <= TOLERANCE


@pytest.mark.parametrize("family", ["GPTNeoX", "Qwen3", "Phi3", "Gemma3Text", "Olmo2"])
def test_other_architectures_are_computed_as_plain_ones(tmp_path: Path, family: str) -> None:
    import transformers

    config = getattr(transformers, f"{family}Config")(**SMALL)
    directory = saved(config, tmp_path)
    model = load_model(read_info(directory, "float32"), (1, 3), "post")
    assert probe(model) < 1e-4


def test_attention_of_another_kind_is_refused(tmp_path: Path) -> None:
    from transformers import Gemma2Config

    directory = saved(Gemma2Config(**SMALL), tmp_path)
    with pytest.raises(EngineUnfit, match=r"scaled_dot_product_attention|softcap"):
        probe(load_model(read_info(directory, "float32"), (1, 3), "post"))


def test_the_probe_refuses_what_is_computed_otherwise(tiny_directory: Path) -> None:
    model = load_model(read_info(tiny_directory, "float32"), (2, 4), "post")
    attention = model.module.base_model.layers[1].self_attn
    right = attention.forward

    def strange(*args: Any, **kwargs: Any) -> Any:
        """Depends on how the pass is packed, as no plain attention does."""
        output, weights = right(*args, **kwargs)
        return output * output.shape[1], weights

    attention.forward = strange
    with pytest.raises(EngineUnfit, match="differ from a plain forward"):
        probe(model)


def test_layers_without_attention_are_refused_before_loading(tmp_path: Path) -> None:
    from transformers import Qwen3NextConfig

    Qwen3NextConfig(num_hidden_layers=4).save_pretrained(tmp_path)
    with pytest.raises(EngineUnfit, match="linear_attention"):
        read_info(tmp_path, "float32")


def test_a_directory_without_a_model_is_a_usage_error(tmp_path: Path, tiny_directory: Path) -> None:
    with pytest.raises(UsageError, match="no model directory"):
        read_info(tmp_path, "float32")
    (tmp_path / "config.json").write_text((tiny_directory / "config.json").read_text())
    with pytest.raises(UsageError, match="cannot be loaded"):
        load_model(read_info(tmp_path, "float32"), (2,), "post")


def test_damaged_weights_are_a_usage_error(tmp_path: Path, tiny_directory: Path) -> None:
    shutil.copytree(tiny_directory, tmp_path / "m")
    with (tmp_path / "m" / "model.safetensors").open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(UsageError, match="cannot be loaded"):
        load_model(read_info(tmp_path / "m", "float32"), (2,), "post")


def test_missing_weights_are_not_made_up(tmp_path: Path, tiny_directory: Path) -> None:
    from safetensors.torch import load_file, save_file

    shutil.copytree(tiny_directory, tmp_path / "m")
    tensors = load_file(tmp_path / "m" / "model.safetensors")
    del tensors["model.layers.3.mlp.up_proj.weight"]
    save_file(tensors, tmp_path / "m" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UsageError, match=r"layers.3.mlp.up_proj"):
        load_model(read_info(tmp_path / "m", "float32"), (2,), "post")
