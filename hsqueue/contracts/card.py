"""The engine's card, ``$HSQ_DUMP_DIR/engine.json``: what the process that writes the dumps is.

Written when the model is loaded, replaced by a restarted engine, read by the pinned worker.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from hsqueue.contracts import CONTRACT_VERSION
from hsqueue.contracts.errors import EngineUnfit
from hsqueue.contracts.target import Target

CARD_NAME = "engine.json"


@dataclass(frozen=True, slots=True)
class EngineCard:
    """contract: version of the dump contract. instance: new at every start of the engine.
    layers: inputs of layers, canonical. layers_asked, layers_held: the same as the user asked for and as the
    model object holds them, whatever its convention. norm: ``post``, ``pre`` or ``both``.
    context_length: tokens the engine accepts in one prompt. server: name and version, ``sglang 0.5.23``.
    ranks: sizes of the parallel groups, ``{"tp": 1, "pp": 1, "dp": 1}``. started: seconds since the epoch.
    problem: why capture is off, or empty.
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

    @property
    def target(self) -> Target:
        return Target(self.model, self.weights, self.layers, self.norm, self.dtype, self.hidden_size, self.vocab_size)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str | bytes) -> EngineCard:
        """Raises EngineUnfit where `text` is no card or one of another contract version."""
        try:
            fields = json.loads(text)
            version = fields["contract"]
            if version == CONTRACT_VERSION:
                for name in ("layers", "layers_asked", "layers_held"):
                    fields[name] = tuple(int(k) for k in fields[name])
                return cls(**fields)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise EngineUnfit(
                f"the engine's card is damaged ({error})", do="Restart the engine; it writes a new card."
            ) from None
        raise EngineUnfit(
            "the engine's capture plugin speaks another contract version",
            expected=CONTRACT_VERSION,
            found=version,
            do="Install the same hsqueue version beside the engine and the worker.",
        )
