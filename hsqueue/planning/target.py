"""What the engine is that a run is planned for: from its card, or from its model directory."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hsqueue.contracts.card import CARD_NAME, EngineCard
from hsqueue.contracts.errors import DumpDirectoryNotShared, EngineUnfit, UsageError
from hsqueue.contracts.layers import parse_layers
from hsqueue.contracts.target import DTYPES, NORMS, Target
from hsqueue.contracts.weights import weights_digest

RESERVED = 7
"""Positions that a server keeps back from a prompt; SGLang accepts no longer one."""


@dataclass(frozen=True, slots=True)
class PlanTarget:
    """target: what the engine must be. context_length: tokens it accepts in one prompt.
    tokenizer: the model's own directory, where it is one on this machine.
    """

    target: Target
    context_length: int
    tokenizer: Path | None


def read_card(dump_dir: Path) -> EngineCard:
    """The card in `dump_dir`. Raises DumpDirectoryNotShared where there is none, EngineUnfit for a damaged one."""
    try:
        return EngineCard.from_json((dump_dir / CARD_NAME).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise DumpDirectoryNotShared(
            f"{dump_dir} holds no {CARD_NAME}: no engine with hsqueue's capture writes there",
            do="Start the engine with HSQ_DUMP_DIR set to this directory and hsqueue installed beside it; "
            "in containers, share the directory between the two.",
        ) from None
    except OSError as error:
        raise DumpDirectoryNotShared(
            f"{dump_dir}/{CARD_NAME} cannot be read ({error.strerror})",
            do="Run engine and worker as the same user.",
        ) from None


def from_card(card: EngineCard) -> PlanTarget:
    """Raises EngineUnfit where the engine does not capture; such a card describes no model."""
    if card.problem:
        raise EngineUnfit(
            f"the engine on port {card.port} does not capture: {card.problem}", do="Mend it before you plan for it."
        )
    model = Path(card.model)
    return PlanTarget(card.target, card.context_length, model if model.is_dir() else None)


def from_model(model: Path, layers: str, norm: str, dtype: str | None) -> PlanTarget:
    """What an engine that serves the directory `model` will be.

    layers: ``eagle3``, ``all`` or ids, as inputs of layers. dtype: None takes the model's own.
    Raises UsageError where the directory or an option does not do.
    """
    try:
        config = json.loads((model / "config.json").read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{model} is no model directory ({type(error).__name__} on config.json)",
            do="Give --model the local directory that the engines load; ids of a hub are not looked up.",
        ) from None
    text = config.get("text_config", config)
    dtype = dtype or str(text.get("dtype") or text.get("torch_dtype") or config.get("dtype") or "bfloat16")
    if norm not in NORMS or dtype not in DTYPES:
        raise UsageError(
            "norm or dtype is not known",
            expected=f"{'/'.join(NORMS)} and {'/'.join(DTYPES)}",
            found=f"{norm}, {dtype}",
        )
    depth = _number(text, model, "num_hidden_layers", "n_layer")
    target = Target(
        model=str(model.resolve()),
        weights=weights_digest(model),
        layers=parse_layers(layers, depth),
        norm=norm,
        dtype=dtype,
        hidden_size=_number(text, model, "hidden_size", "n_embd"),
        vocab_size=_number(text, model, "vocab_size"),
    )
    positions = _number(text, model, "max_position_embeddings", "n_positions")
    return PlanTarget(target, max(1, positions - RESERVED), model)


def _number(config: dict[str, Any], model: Path, *names: str) -> int:
    for name in names:
        if isinstance(config.get(name), int):
            return int(config[name])
    raise UsageError(f"{model}/config.json names no {names[0]}", do="Plan with --engine URL instead.")
