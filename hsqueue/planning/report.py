"""``plan.json``: what went into a plan and what came out, for people and for ``hsqueue report``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from hsqueue.contracts.errors import RunDamaged

PERCENTILES = (1, 5, 25, 50, 75, 90, 95, 99)


@dataclass(frozen=True, slots=True)
class SourceReport:
    """file: path as the user gave it. bytes: its size. digest: XXH3-128 of its bytes. samples: those planned."""

    file: str
    kind: str
    bytes: int
    digest: str
    samples: int


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens a sample. percentiles: nearest rank, ``{"50": median}``.
    histogram: samples by ``{"<=512": n}``, powers of two, none left out between the first and the last.
    """

    shortest: int
    longest: int
    mean: float
    percentiles: dict[str, int]
    histogram: dict[str, int]


@dataclass(frozen=True, slots=True)
class PlanReport:
    """run: the run's id. supervised_tokens: of `tokens`, those with loss mask 1.
    unsupervised: samples without any such token. rejected: lines by reason.
    """

    run: str
    samples: int
    shards: int
    tokens: int
    supervised_tokens: int
    unsupervised: int
    rejected: dict[str, int]
    lengths: Lengths
    sources: tuple[SourceReport, ...]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str | bytes, where: object) -> PlanReport:
        """Raises RunDamaged where `text` is not what ``to_json`` writes. where: named in the error."""
        try:
            table = json.loads(text)
            lengths = Lengths(**table.pop("lengths"))
            sources = tuple(SourceReport(**source) for source in table.pop("sources"))
            return cls(**table, lengths=lengths, sources=sources)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise RunDamaged(
                f"{where} is damaged or of another version ({error})",
                do="Restore it from a backup, or plan again into another directory.",
            ) from None


def length_statistics(counts: Mapping[int, int]) -> Lengths:
    """counts: samples by their number of tokens, at least one sample."""
    total = sum(counts.values())
    ordered = sorted(counts)
    return Lengths(
        shortest=ordered[0],
        longest=ordered[-1],
        mean=round(sum(length * n for length, n in counts.items()) / total, 2),
        percentiles={str(p): _at_rank(counts, ordered, max(1, -(-p * total // 100))) for p in PERCENTILES},
        histogram=_histogram(counts, ordered),
    )


def _at_rank(counts: Mapping[int, int], ordered: list[int], rank: int) -> int:
    for length in ordered:
        rank -= counts[length]
        if rank <= 0:
            break
    return length


def _histogram(counts: Mapping[int, int], ordered: list[int]) -> dict[str, int]:
    first, last = _bucket(ordered[0]), _bucket(ordered[-1])
    buckets = dict.fromkeys(range(first, last + 1), 0)
    for length, n in counts.items():
        buckets[_bucket(length)] += n
    return {f"<={1 << bucket}": n for bucket, n in buckets.items()}


def _bucket(length: int) -> int:
    """The exponent of the smallest power of two that is not below `length`."""
    return (length - 1).bit_length()
