"""From many values to a few that can be drawn. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil, floor, log10

from hsqueue.contracts.work import Span

MOST_BINS = 32
TAIL = 0.99
"""Share of the values that the bins of one width hold; what is larger has one bin together."""


@dataclass(frozen=True, slots=True)
class Bin:
    """Values from `low` on, below `high`; None: without end."""

    low: float
    high: float | None
    count: int


def histogram(counts: Mapping[int, int], unit: float = 1.0) -> tuple[Bin, ...]:
    """Bins of one round width in terms of `unit`, the last perhaps without end. counts: how often by value."""
    if not counts:
        return ()
    total, ordered = sum(counts.values()), sorted(counts)
    seen, most = 0, ordered[-1]
    for value in ordered:
        seen += counts[value]
        if seen >= TAIL * total:
            most = value
            break
    low = ordered[0]
    step = max(1.0, round_step((most - low) / unit / (MOST_BINS - 2)) * unit if most > low else 1.0)
    first = floor(low / step)
    width = floor(most / step) - first + 1
    found = [0] * (width + 1)
    for value, count in counts.items():
        found[min(width, floor(value / step) - first)] += count
    bins = [Bin((first + place) * step, (first + place + 1) * step, found[place]) for place in range(width)]
    return (*bins, Bin((first + width) * step, None, found[width])) if found[width] else tuple(bins)


def round_step(least: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is not below `least`, which is positive."""
    power = 10.0 ** floor(log10(least))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= least * (1 - 1e-9))


def byte_unit(most: float) -> tuple[float, str]:
    """The unit in which `most` bytes are a small number, and its name."""
    for power, name in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if most >= 1024**power:
            return 1024.0**power, name
    return 1.0, "B"


@dataclass(frozen=True, slots=True)
class WorkerRate:
    """shards: of which it worked at some part. busy: seconds in which it had at least one. rates: tokens a second in
    each interval of the run.
    """

    worker: str
    shards: int
    samples: int
    tokens: int
    busy: float
    rates: tuple[float, ...]

    @property
    def rate(self) -> float:
        """Tokens a second while at work."""
        return self.tokens / self.busy if self.busy else 0.0


@dataclass(frozen=True, slots=True)
class Rates:
    """began, ended: Unix seconds of the first and the last lease. busy: seconds in which anybody worked."""

    began: float
    ended: float
    busy: float
    workers: tuple[WorkerRate, ...]

    @property
    def together(self) -> tuple[float, ...]:
        """Tokens a second of all workers, by interval."""
        return tuple(sum(column) for column in zip(*(w.rates for w in self.workers), strict=True))


def rates(spans: Iterable[Span], intervals: int = 120) -> Rates | None:
    """How fast each worker was, over time. What a lease published counts evenly over its life; a lease that never
    said what it did counts for nothing. None where no lease did.
    """
    told = [span for span in spans if span.ended]
    if not told:
        return None
    began, ended = min(s.began for s in told), max(max(s.ended, s.began) for s in told)
    width = max((ended - began) / intervals, 1e-3)
    by_worker: dict[str, list[Span]] = {}
    for span in told:
        by_worker.setdefault(span.worker, []).append(span)
    workers = tuple(
        WorkerRate(
            name, len(mine), sum(s.samples for s in mine), sum(s.tokens for s in mine), covered(mine),
            _spread(mine, began, width, intervals),
        )
        for name, mine in sorted(by_worker.items())
    )  # fmt: skip
    return Rates(began, ended, covered(told), workers)


def _spread(spans: list[Span], began: float, width: float, intervals: int) -> tuple[float, ...]:
    tokens = [0.0] * intervals
    for span in spans:
        first = min(intervals - 1, int((span.began - began) / width))
        last = min(intervals - 1, max(first, ceil((span.ended - began) / width) - 1))
        life = span.ended - span.began
        if last == first or life <= 0:
            tokens[first] += span.tokens
            continue
        for place in range(first, last + 1):
            begin, end = began + place * width, began + (place + 1) * width
            tokens[place] += span.tokens * max(0.0, min(end, span.ended) - max(begin, span.began)) / life
    return tuple(n / width for n in tokens)


def covered(spans: Iterable[Span]) -> float:
    """Seconds in which at least one of `spans` was under way."""
    total, until = 0.0, float("-inf")
    for span in sorted(spans, key=lambda s: s.began):
        total += max(0.0, span.ended - max(span.began, until))
        until = max(until, span.ended)
    return total
