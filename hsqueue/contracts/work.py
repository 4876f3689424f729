"""How a shard came about: who worked at it and when, where the time went, what had to be tried again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hsqueue.contracts import fields
from hsqueue.contracts.meters import STAGES

MOST_SPANS = 16
"""A shard that is leased more often keeps the account of its last leases only."""
LATEST = 1e12
"""Seconds; no time and no duration is beyond."""


@dataclass(frozen=True, slots=True)
class Span:
    """One lease. worker: who held it. began, ended: Unix seconds by its clock; ended is 0 where it never said so.
    samples, tokens: published under it.
    """

    worker: str
    began: float
    ended: float = 0.0
    samples: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Work:
    """Of all leases that the ledger remembers. lost: leases that were taken over, since their worker died or froze.
    engine_downs: leases that an engine's death ended. seconds: by stage, summed as in meters. retries: requests that
    had to be repeated, by the name of the error.
    """

    leases: int = 0
    lost: int = 0
    engine_downs: int = 0
    seconds: Mapping[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    retries: Mapping[str, int] = field(default_factory=dict)
    spans: tuple[Span, ...] = ()

    def opened(self, worker: str, now: float) -> Work:
        """With one more lease; the one before it is lost where it never ended."""
        lost = self.lost + bool(self.spans and not self.spans[-1].ended)
        spans = (*self.spans, Span(worker, round(now, 3)))[-MOST_SPANS:]
        return replace(self, leases=self.leases + 1, lost=lost, spans=spans)

    def closed(
        self, now: float, samples: int, tokens: int,
        seconds: Mapping[str, float], retries: Mapping[str, int], engine_down: bool,
    ) -> Work:  # fmt: skip
        """With what its last lease did."""
        return replace(
            self,
            engine_downs=self.engine_downs + engine_down,
            seconds={stage: round(self.seconds[stage] + seconds.get(stage, 0.0), 3) for stage in STAGES},
            retries=dict(sorted((Counter(self.retries) + Counter(retries)).items())),
            spans=(*self.spans[:-1], replace(self.spans[-1], ended=round(now, 3), samples=samples, tokens=tokens)),
        )

    def to_table(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "leases": self.leases, "lost": self.lost, "engine_downs": self.engine_downs,
            "seconds": dict(self.seconds), "retries": dict(self.retries),
            "spans": [[s.worker, s.began, s.ended, s.samples, s.tokens] for s in self.spans],
        }  # fmt: skip

    @classmethod
    def from_table(cls, table: Any) -> Work:
        """Raises ValueError, TypeError or KeyError where `table` is none that ``to_table`` made."""
        seconds, retries = table["seconds"], table["retries"]
        if set(seconds) != set(STAGES) or len(table["spans"]) > MOST_SPANS:
            raise ValueError("an account of other stages, or of too many leases")
        return cls(
            leases=fields.count(table, "leases"),
            lost=fields.count(table, "lost"),
            engine_downs=fields.count(table, "engine_downs"),
            seconds={stage: _duration(seconds, stage) for stage in STAGES},
            retries={name: fields.count(retries, name) for name in retries.keys()},  # noqa: SIM118 - a list has none
            spans=tuple(_span(*row) for row in table["spans"]),
        )


def _duration(table: Mapping[str, Any], name: str) -> float:
    value = fields.seconds(table, name)
    if not 0 <= value <= LATEST:
        raise ValueError(f"{name} is {value!r:.40}, not a duration")
    return value


def _span(worker: object, began: object, ended: object, samples: object, tokens: object) -> Span:
    row = {"worker": worker, "began": began, "ended": ended, "samples": samples, "tokens": tokens}
    return Span(
        fields.text(row, "worker"), _duration(row, "began"), _duration(row, "ended"),
        fields.count(row, "samples"), fields.count(row, "tokens"),
    )  # fmt: skip
