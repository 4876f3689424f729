"""The engine's card, ``$HSQ_DUMP_DIR/engine.json``: what the process that writes the dumps is.

Written when the model is loaded, replaced by a restarted engine, read by the pinned worker.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from hsqueue.contracts import CONTRACT_VERSION, fields
from hsqueue.contracts.errors import EngineUnfit
from hsqueue.contracts.target import DTYPES, NORMS, Target

CARD_NAME = "engine.json"


@dataclass(frozen=True, slots=True)
class EngineCard:
    """contract: version of the dump contract. instance: new at every start of the engine.
    layers: inputs of layers, canonical. layers_asked, layers_held: the same as the user asked for and as the
    model object holds them, whatever its convention. norm: ``post``, ``pre`` or ``both``.
    context_length: tokens the engine accepts in one prompt. server: name and version, ``sglang 0.5.23``.
    ranks: sizes of the parallel groups, ``{"tp": 1, "pp": 1, "dp": 1}``. started: seconds since the epoch.
    problem: why capture is off, or empty. device: what it computes on, ``2x NVIDIA H200``, ``cpu``, or empty.
    """

    contract: int
    instance: str
    model: str
    weights: str
    num_layers: int
    hidden_size: int
    vocab_size: int
    context_length: int
    dtype: str
    layers: tuple[int, ...]
    layers_asked: tuple[int, ...]
    layers_held: tuple[int, ...]
    norm: str
    server: str
    host: str
    port: int
    pid: int
    started: float
    ranks: dict[str, int]
    problem: str = ""
    device: str = ""

    @property
    def target(self) -> Target:
        return Target(self.model, self.weights, self.layers, self.norm, self.dtype, self.hidden_size, self.vocab_size)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str | bytes) -> EngineCard:
        """Raises EngineUnfit where `text` is no card or one of another contract version."""
        try:
            table = json.loads(text)
            version = table["contract"]
            if version == CONTRACT_VERSION:
                return cls._checked(table)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise EngineUnfit(
                f"the engine's card is damaged ({str(error)[:120]})", do="Restart the engine; it writes a new card."
            ) from None
        raise EngineUnfit(
            "the engine's capture plugin speaks another contract version",
            expected=CONTRACT_VERSION,
            found=version,
            do="Install the same hsqueue version beside the engine and the worker.",
        )

    @classmethod
    def _checked(cls, table: dict[str, Any]) -> EngineCard:
        ranks = table["ranks"]
        if not isinstance(ranks, dict):
            raise ValueError(f"ranks is {ranks!r:.40}, not an object")
        return cls(
            contract=fields.count(table, "contract"),
            instance=fields.text(table, "instance"),
            model=fields.text(table, "model"),
            weights=fields.text(table, "weights"),
            num_layers=fields.count(table, "num_layers", 1),
            hidden_size=fields.count(table, "hidden_size", 1),
            vocab_size=fields.count(table, "vocab_size", 1),
            context_length=fields.count(table, "context_length", 1),
            dtype=fields.text(table, "dtype", DTYPES),
            layers=fields.counts(table, "layers"),
            layers_asked=fields.counts(table, "layers_asked"),
            layers_held=fields.counts(table, "layers_held"),
            norm=fields.text(table, "norm", NORMS),
            server=fields.text(table, "server"),
            host=fields.text(table, "host"),
            port=fields.count(table, "port"),
            pid=fields.count(table, "pid"),
            started=fields.seconds(table, "started"),
            ranks={str(name): fields.count(ranks, name) for name in ranks},
            problem=fields.text(table, "problem"),
            device=fields.text(table, "device"),
        )
