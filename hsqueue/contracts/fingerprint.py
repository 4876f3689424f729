"""``run.json``: what a run was made for. Written once; everything that touches the run is held against it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from hsqueue.contracts import CONTRACT_VERSION, fields
from hsqueue.contracts.errors import FingerprintMismatch, RunDamaged
from hsqueue.contracts.rid import RUN_ID
from hsqueue.contracts.target import DTYPES, NORMS, Target


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """model, weights, layers, norm, dtype, hidden_size, vocab_size: see Target.
    layer_convention: always ``input``; ids are inputs of layers.
    tokenizer: digest of the tokenizer's files. chat_template: digest of the template's text, or ``none``.
    dataset: digest of the source files' bytes. max_length: tokens; longer conversations were rejected.
    min_loss_tokens: conversations with fewer supervised tokens were rejected. shard_size: samples a shard.
    ids: ``required``, or ``line`` where ids were made from file and line.
    """

    model: str
    weights: str
    layers: tuple[int, ...]
    norm: str
    dtype: str
    hidden_size: int
    vocab_size: int
    tokenizer: str
    chat_template: str
    dataset: str
    max_length: int
    min_loss_tokens: int
    shard_size: int
    ids: str = "required"
    layer_convention: str = "input"
    contract: int = CONTRACT_VERSION

    @property
    def target(self) -> Target:
        return Target(self.model, self.weights, self.layers, self.norm, self.dtype, self.hidden_size, self.vocab_size)

    def differences(self, other: Fingerprint) -> dict[str, tuple[object, object]]:
        """Fields that differ as ``{name: (here, there)}``; a model's path is compared only by its weights."""
        mine, theirs = asdict(self), asdict(other)
        return {k: (mine[k], theirs[k]) for k in mine if k != "model" and mine[k] != theirs[k]}

    def require(self, other: Fingerprint, run: object) -> None:
        """Raises FingerprintMismatch, naming every field, where `other` is not this."""
        different = self.differences(other)
        if different:
            listed = "; ".join(f"{name}: the run has {a}, this is {b}" for name, (a, b) in different.items())
            raise FingerprintMismatch(
                f"{run} was made for something else ({listed})",
                do="Use another --out directory, or the same inputs and options as before.",
            )


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The whole of ``run.json``. run: the run's id. created: seconds since the epoch, by the planner's clock.
    samples, shards, tokens: totals of the plan.
    """

    run: str
    created: float
    samples: int
    shards: int
    tokens: int
    fingerprint: Fingerprint

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str | bytes, where: object) -> RunInfo:
        """Raises RunDamaged where `text` is not what ``to_json`` writes. where: named in the error."""
        try:
            return cls._checked(json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise RunDamaged(
                f"{where} is damaged or of another version ({str(error)[:120]})",
                do="Restore it from a backup, or start a new run.",
            ) from None

    @classmethod
    def _checked(cls, table: dict[str, Any]) -> RunInfo:
        info = cls(
            run=fields.text(table, "run"),
            created=fields.seconds(table, "created"),
            samples=fields.count(table, "samples"),
            shards=fields.count(table, "shards"),
            tokens=fields.count(table, "tokens"),
            fingerprint=_fingerprint(table["fingerprint"]),
        )
        if not RUN_ID.fullmatch(info.run):
            raise ValueError(f"impossible run id {info.run!r:.60}")
        if info.shards != -(-info.samples // info.fingerprint.shard_size):
            raise ValueError(
                f"{info.shards} shards of {info.fingerprint.shard_size} cannot hold {info.samples} samples"
            )
        return info

    def shard_range(self, shard: int) -> range:
        """Indices of the samples of `shard`. Raises IndexError outside the run."""
        if not 0 <= shard < self.shards:
            raise IndexError(f"shard {shard} of {self.shards}")
        size = self.fingerprint.shard_size
        return range(shard * size, min((shard + 1) * size, self.samples))


def _fingerprint(table: dict[str, Any]) -> Fingerprint:
    if table["contract"] != CONTRACT_VERSION or isinstance(table["contract"], bool):
        raise ValueError(f"contract version {table['contract']!r:.20}, this is {CONTRACT_VERSION}")
    return Fingerprint(
        model=fields.text(table, "model"),
        weights=fields.text(table, "weights"),
        layers=fields.counts(table, "layers"),
        norm=fields.text(table, "norm", NORMS),
        dtype=fields.text(table, "dtype", DTYPES),
        hidden_size=fields.count(table, "hidden_size", 1),
        vocab_size=fields.count(table, "vocab_size", 1),
        tokenizer=fields.text(table, "tokenizer"),
        chat_template=fields.text(table, "chat_template"),
        dataset=fields.text(table, "dataset"),
        max_length=fields.count(table, "max_length", 1),
        min_loss_tokens=fields.count(table, "min_loss_tokens"),
        shard_size=fields.count(table, "shard_size", 1),
        ids=fields.text(table, "ids", ("required", "line")),
        layer_convention=fields.text(table, "layer_convention", ("input",)),
    )
