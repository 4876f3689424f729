"""The engine's card, from what SGLang knows of its model and of itself."""

from __future__ import annotations

import os
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hscapture.sglang.decoder import Capture
from hsqueue.contracts import CONTRACT_VERSION
from hsqueue.contracts.card import EngineCard
from hsqueue.contracts.errors import EngineUnfit
from hsqueue.contracts.weights import weights_digest

RESERVED = 6
"""Tokens of the context that SGLang keeps back from a prompt, until the scheduler says how many it takes."""
INSTANCE = "HSQ_INSTANCE"
"""Set in the server's first process and inherited by the others, so that all ranks are one instance."""


@dataclass(frozen=True, slots=True)
class Shape:
    """num_layers, hidden_size, vocab_size: of the text model. dtype: of its states, as the contract writes it."""

    num_layers: int
    hidden_size: int
    vocab_size: int
    dtype: str


def shape_of(model_config: Any) -> Shape:
    """From SGLang's ``ModelConfig``."""
    return Shape(
        num_layers=int(model_config.num_hidden_layers),
        hidden_size=int(model_config.hidden_size),
        vocab_size=int(model_config.vocab_size),
        dtype=str(model_config.dtype).removeprefix("torch."),
    )


def head_scale(model_config: Any) -> float | None:
    """What the model divides its last state by before the head, or None."""
    config = getattr(model_config, "hf_text_config", None) or model_config.hf_config
    scale = getattr(config, "logits_mup_width_multiplier", None)
    return float(scale) if scale else None


def model_directory(path: str, revision: str | None) -> Path:
    """Where the model's files are: `path` itself, or a hub's id in the local cache that SGLang loaded it from.

    Raises EngineUnfit where no directory is found.
    """
    if Path(path).is_dir():
        return Path(path).resolve()
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(path, revision=revision, local_files_only=True))
    except Exception as error:  # noqa: BLE001 - the hub's client raises a dozen kinds
        raise EngineUnfit(
            f"the files of model {path!r} were not found ({type(error).__name__})",
            do="Start SGLang with the model's local directory; its digest tells runs of different weights apart.",
        ) from None


def instance() -> str:
    """The same in all processes of one start of the server."""
    return os.environ.setdefault(INSTANCE, uuid.uuid4().hex)


def device_name(count: int) -> str:
    """What `count` ranks compute on, for people: ``2x NVIDIA H200``, ``cpu``, or empty where torch cannot say."""
    try:
        name = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    except RuntimeError:
        return ""
    return name if count == 1 else f"{count}x {name}"


def build_card(
    server_args: Any, model_config: Any, version: str, norm: str, layers: tuple[int, ...], capture: Capture
) -> EngineCard:
    """A card without a problem. server_args, model_config: SGLang's. Raises EngineUnfit, OSError."""
    shape = shape_of(model_config)
    ranks = {name: int(getattr(server_args, f"{name}_size", 1)) for name in ("tp", "pp", "dp")}
    directory = model_directory(server_args.model_path, getattr(server_args, "revision", None))
    return EngineCard(
        contract=CONTRACT_VERSION,
        instance=instance(),
        model=str(directory),
        weights=weights_digest(directory, dummy=str(server_args.load_format) == "dummy"),
        num_layers=shape.num_layers,
        hidden_size=shape.hidden_size,
        vocab_size=shape.vocab_size,
        context_length=max(1, int(model_config.context_len) - RESERVED),
        dtype=shape.dtype,
        layers=layers,
        layers_asked=capture.asked,
        layers_held=capture.held,
        norm=norm,
        server=f"sglang {version}",
        host=str(server_args.host),
        port=int(server_args.port),
        pid=os.getpid(),
        started=time.time(),
        ranks=ranks,
        device=device_name(ranks["tp"] * ranks["pp"]),
    )


def problem_card(problem: str, version: str, server_args: Any = None) -> EngineCard:
    """The card of an engine that does not capture; `problem` says why, and no other field is to be relied on."""
    return EngineCard(
        contract=CONTRACT_VERSION,
        instance=instance(),
        model=str(getattr(server_args, "model_path", "unknown")),
        weights="unknown",
        num_layers=1,
        hidden_size=1,
        vocab_size=1,
        context_length=1,
        dtype="bfloat16",
        layers=(),
        layers_asked=(),
        layers_held=(),
        norm="post",
        server=f"sglang {version}",
        host=str(getattr(server_args, "host", "unknown")),
        port=int(getattr(server_args, "port", 0)),
        pid=os.getpid(),
        started=time.time(),
        ranks={},
        problem=problem,
    )
