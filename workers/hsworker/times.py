"""Where the time of a shard's samples goes: at the engine, at the dump, at the volume."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

ENGINE, DUMP, VOLUME = "engine", "dump", "volume"
SLOW_VOLUME = 1.0
"""Seconds to publish a sample from which a volume may be called slow; a shared one takes a tenth of it."""
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

    def plus(self, seconds: float) -> Spent:
        return Spent(self.samples + 1, self.seconds + seconds)


class Times:
    """Counts of one lease; any thread may add."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spent = {name: Spent() for name in (ENGINE, DUMP, VOLUME)}

    def __getitem__(self, stage: str) -> Spent:
        return self._spent[stage]

    @contextmanager
    def spend(self, stage: str) -> Iterator[None]:
        """What is done within it counts for `stage`, unless it fails."""
        began = time.monotonic()
        yield
        with self._lock:
            self._spent[stage] = self._spent[stage].plus(time.monotonic() - began)

    def __str__(self) -> str:
        return ", ".join(f"{name} {spent.mean:.2f} s" for name, spent in self._spent.items() if spent.samples)


def complaint(engine: Spent, volume: Spent) -> str:
    """What is wrong with the volume, for people; empty where it keeps up."""
    if volume.samples < ENOUGH or volume.mean < SLOW_VOLUME or volume.mean < engine.mean:
        return ""
    return (
        f"the volume is slow and holds the engine up: publishing a sample takes {volume.mean:.1f} s, the engine's "
        f"answer {engine.mean:.1f} s; see what else writes to it, or raise HSQ_PUBLISHERS"
    )
