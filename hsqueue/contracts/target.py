"""What an engine must be for its states to belong to a run; also what a queue is named after."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass

NORMS = ("post", "pre", "both")
DTYPES = ("bfloat16", "float16", "float32")


@dataclass(frozen=True, slots=True)
class Target:
    """model: path or name as served. weights: digest of config and weights (see ``hsqueue.contracts.weights``).
    layers: inputs of layers, ascending. norm: one of NORMS, of the last state. dtype: one of DTYPES.
    hidden_size: values in one state. vocab_size: token ids run from 0 to one less.
    """

    model: str
    weights: str
    layers: tuple[int, ...]
    norm: str
    dtype: str
    hidden_size: int
    vocab_size: int

    @property
    def queue(self) -> str:
        """The queue shared by all workers whose engines fit, such as ``hsq.bfloat16-post-3x4096.1f2e3d4c5b``.

        The model's path does not enter it, since nodes mount the model at different places.
        """
        identity = f"{self.weights}|{self.layers}|{self.norm}|{self.dtype}|{self.hidden_size}|{self.vocab_size}"
        digest = hashlib.sha256(identity.encode()).hexdigest()[:10]
        return f"hsq.{self.dtype}-{self.norm}-{len(self.layers)}x{self.hidden_size}.{digest}"

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one row of a published sample: states, token id and loss mask."""
        states = len(self.layers) + (2 if self.norm == "both" else 1)
        return states * self.hidden_size * (4 if self.dtype == "float32" else 2) + 8 + 1

    def differences(self, other: Target) -> dict[str, tuple[object, object]]:
        """Fields that differ as ``{name: (here, there)}``; the model's path counts for nothing."""
        mine, theirs = asdict(self), asdict(other)
        return {k: (mine[k], theirs[k]) for k in mine if k != "model" and mine[k] != theirs[k]}
