"""Where the time of a shard's samples goes, and what came of them: figures of one lease."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from hsqueue.contracts.meters import BUCKETS, DUMP, ENGINE, VOLUME, bucket_name, spent_name
from hsqueue.monitoring.limits import volume_is_slow

ENOUGH = 8
"""Samples before anything is said."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Of one stage: samples that went through, and their seconds together."""

    samples: int = 0
    seconds: float = 0.0

    @property
    def mean(self) -> float:
        return self.seconds / self.samples if self.samples else 0.0


class Times:
    """Counters of one lease, named as in ``hsqueue.contracts.meters``; any thread may add."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Appended to without the lock, which many threads would wait for; added up by whoever reads.
        self._fresh: deque[tuple[str, float]] = deque()
        self._counters: Counter[str] = Counter()
        self._told: Counter[str] = Counter()

    def __getitem__(self, stage: str) -> Spent:
        with self._added_up():
            samples = sum(self._counters[name] for name in BUCKETS[stage])
            return Spent(samples, self._counters[spent_name(stage)] / 1e6)

    @contextmanager
    def spend(self, stage: str) -> Iterator[None]:
        """What is done within it counts for `stage`, unless it fails."""
        began = time.monotonic()
        yield
        self.add(stage, time.monotonic() - began)

    def add(self, stage: str, seconds: float) -> None:
        self._fresh.append((stage, seconds))

    @contextmanager
    def _added_up(self) -> Iterator[None]:
        with self._lock:
            while self._fresh:
                stage, seconds = self._fresh.popleft()
                self._counters[spent_name(stage)] += round(seconds * 1e6)
                self._counters[bucket_name(stage, seconds)] += 1
            yield

    def count(self, **numbers: int) -> None:
        with self._lock:
            for name, number in numbers.items():
                self._counters[name] += number

    def counters(self) -> dict[str, int]:
        with self._added_up():
            return dict(self._counters)

    def untold(self) -> dict[str, int]:
        """What has come since the last ``tell``."""
        with self._added_up():
            return dict(self._counters - self._told)

    def tell(self, increments: Mapping[str, int]) -> None:
        """These have been passed on."""
        with self._lock:
            self._told.update(increments)

    def __str__(self) -> str:
        spent = {name: self[name] for name in (ENGINE, DUMP, VOLUME)}
        return ", ".join(f"{name} {of.mean:.2f} s" for name, of in spent.items() if of.samples)


def complaint(engine: Spent, volume: Spent) -> str:
    """What is wrong with the volume, for people; empty where it keeps up."""
    if volume.samples < ENOUGH or not volume_is_slow(volume.mean, engine.mean):
        return ""
    return (
        f"the volume is slow and holds the engine up: publishing a sample takes {volume.mean:.1f} s, the engine's "
        f"answer {engine.mean:.1f} s; see what else writes to it, or raise HSQ_PUBLISHERS"
    )
