"""Any Hugging Face decoder-only model on the CPU, run on packed batches with its hidden states taken out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hscapture.finite import finite_flags
from hscapture.rows import States
from hsengine.attention import NAME, PLAIN, Part, Step, running, unfit
from hsqueue.contracts.errors import UsageError

NORM_NAMES = ("norm", "final_layernorm", "final_layer_norm", "ln_f", "final_norm")
LAYER_TYPES = ("full_attention", "sliding_attention")


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """context_length: positions that the model has, prompt and completion together."""

    directory: Path
    num_layers: int
    hidden_size: int
    vocab_size: int
    context_length: int
    dtype: str


class Model:
    """A loaded model. layers: inputs of layers to take, ascending. norm: ``post``, ``pre`` or ``both``.

    Hooks take the states, so they are what the model itself computes: the input of a layer before the
    layer, the input and the output of the final norm.
    """

    def __init__(self, module: Any, info: ModelInfo, layers: Sequence[int], norm: str) -> None:
        self.module, self.info, self.layers, self.norm = module, info, tuple(layers), norm
        self._caught: dict[int | str, torch.Tensor] = {}
        decoder_layers, final_norm = find_layers(module.base_model, info.num_layers)
        for k in self.layers:
            entry = final_norm if k == info.num_layers else decoder_layers[k]
            entry.register_forward_pre_hook(self._catch_input(k), with_kwargs=True)
        final_norm.register_forward_pre_hook(self._catch_input("pre"), with_kwargs=True)
        final_norm.register_forward_hook(self._catch_output)
        self.plain_attention: str = module.config._attn_implementation
        module.config._attn_implementation = NAME

    @property
    def stop_tokens(self) -> frozenset[int]:
        """Ids that end a completion, as the model directory names them."""
        for config in (self.module.generation_config, self.module.config):
            ids = getattr(config, "eos_token_id", None)
            if ids is not None:
                return frozenset(ids if isinstance(ids, list) else [ids])
        return frozenset()

    @torch.inference_mode()
    def forward(self, parts: Sequence[Part]) -> States:
        """Computes the new tokens of all parts in one pass; rows lie in the order of the parts.

        Token ids must be within the vocabulary. The past of every part that has one grows by its rows.
        """
        ids = torch.tensor([token for part in parts for token in part.input_ids], dtype=torch.int64)
        positions = torch.cat([torch.arange(p.position, p.position + len(p.input_ids)) for p in parts])
        step = Step(parts)
        with running(step):
            self.module.base_model(input_ids=ids[None], position_ids=positions[None], use_cache=False)
        if step.calls != self.info.num_layers:
            raise unfit(f"{step.calls} of {self.info.num_layers} layers use plain attention")
        for part in parts:
            if part.kv is not None:
                part.kv.length += len(part.input_ids)
        return self._states(ids)

    @torch.inference_mode()
    def next_tokens(self, rows: Sequence[int]) -> list[int]:
        """Greedy next token after each of these rows of the pass that ran last."""
        head = self.module.get_output_embeddings()
        tokens: list[int] = head(self._caught["post"][0, list(rows)]).argmax(-1).tolist()
        return tokens

    def _states(self, ids: torch.Tensor) -> States:
        aux = torch.cat([self._caught[k][0] for k in self.layers], dim=-1)
        last = self._caught["post"][0] if self.norm in ("post", "both") else None
        prenorm = self._caught["pre"][0] if self.norm in ("pre", "both") else None
        return States(ids, aux, last, prenorm, finite_flags(aux, len(self.layers), last, prenorm))

    def _catch_input(self, key: int | str) -> Callable[..., None]:
        def hook(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self._caught[key] = args[0] if args else kwargs["hidden_states"]

        return hook

    def _catch_output(self, _: Any, __: Any, output: torch.Tensor) -> None:
        self._caught["post"] = output


def find_layers(base: torch.nn.Module, count: int) -> tuple[torch.nn.ModuleList, torch.nn.Module]:
    """The decoder layers and the norm behind the last one. Raises EngineUnfit where there are none to be found."""
    for parent in base.modules():
        for child in parent.children():
            if isinstance(child, torch.nn.ModuleList) and len(child) == count:
                for name in NORM_NAMES:
                    norm = getattr(parent, name, None)
                    if isinstance(norm, torch.nn.Module):
                        return child, norm
    raise unfit("its decoder layers or its final norm have unusual names")


def read_info(directory: Path, dtype: str) -> ModelInfo:
    """What the engine must know before the weights are loaded. Raises UsageError or EngineUnfit."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(directory, local_files_only=True).get_text_config()
    except (OSError, ValueError) as error:
        raise UsageError(
            f"--model {directory} is no model directory ({first_line(error)})",
            do="Name a directory with config.json and weights, or leave --model out.",
        ) from None
    strange = set(getattr(config, "layer_types", None) or ()) - set(LAYER_TYPES)
    if strange or getattr(config, "is_encoder_decoder", False):
        raise unfit(f"layers of type {', '.join(sorted(strange))}" if strange else "an encoder and a decoder")
    return ModelInfo(
        directory,
        config.num_hidden_layers,
        config.hidden_size,
        config.vocab_size,
        config.max_position_embeddings,
        dtype,
    )


def load_model(info: ModelInfo, layers: Sequence[int], norm: str) -> Model:
    """Loads the weights. Raises UsageError where they are missing or damaged, EngineUnfit for another kind of model."""
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        module, loading = AutoModelForCausalLM.from_pretrained(
            info.directory,
            torch_dtype=getattr(torch, info.dtype),
            attn_implementation=PLAIN,
            local_files_only=True,
            output_loading_info=True,
        )
    except (OSError, SafetensorError) as error:
        raise _unloadable(info, first_line(error)) from None
    except ValueError as error:
        raise unfit(first_line(error)) from None
    if loading["missing_keys"]:
        # transformers fills what is missing with random numbers and goes on.
        raise _unloadable(info, f"no {sorted(loading['missing_keys'])[0]}")
    return Model(module.eval(), info, layers, norm)


def _unloadable(info: ModelInfo, why: str) -> UsageError:
    return UsageError(
        f"the weights in {info.directory} cannot be loaded ({why})",
        do="Name a complete model directory of a decoder-only model.",
    )


def first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:160]
