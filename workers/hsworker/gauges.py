"""How a worker's processes fare, for its main process to tell: a small file that all of them map.

Each process writes a place of its own and nobody else's, so no lock is taken for a sample; a reader may see a number
that is one step old.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hsworker.budget import SLOTS, is_alive

_PLACE = struct.Struct("<qqdqddd")
_TOTALS = struct.Struct("<qq")
_SIZE = _PLACE.size + _TOTALS.size
RECENT = 8
"""Samples after which a recent mean is mostly of the new ones."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Of one living process. requests: unanswered. heard: when the engine last answered, or when there was first a
    request to answer; seconds of the system's monotonic clock, as `published`: the same of publications, of which
    `publishing` are under way. answer_seconds, publish_seconds: what they take of late; from 0.
    """

    pid: int
    requests: int = 0
    heard: float = 0.0
    publishing: int = 0
    published: float = 0.0
    answer_seconds: float = 0.0
    publish_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Totals:
    """What a worker's processes have published since it was started."""

    samples: int
    tokens: int


class Gauge:
    """One process's place, written by any of its threads. buffer: where it lies, at `offset`; its own by default."""

    def __init__(self, buffer: bytearray | mmap.mmap | None = None, offset: int = 0) -> None:
        self._buffer = bytearray(_SIZE) if buffer is None else buffer
        self._offset = offset
        self._lock = threading.Lock()
        self._pid, self._requests, self._heard = os.getpid(), 0, 0.0
        self._publishing, self._published = 0, 0.0
        self._answer, self._publish = 0.0, 0.0
        self._samples, self._tokens = _TOTALS.unpack_from(self._buffer, offset + _PLACE.size)
        self._write()

    def asked(self) -> None:
        """A request is on its way."""
        with self._lock:
            if not self._requests:
                self._heard = time.monotonic()
            self._requests += 1
            self._write()

    def answered(self, seconds: float | None) -> None:
        """seconds: that the answer took; None where none came."""
        with self._lock:
            self._requests -= 1
            if seconds is not None:
                self._heard = time.monotonic()
                self._answer = _recent(self._answer, seconds)
            self._write()

    @contextmanager
    def publication(self, tokens: int) -> Iterator[None]:
        """A sample of `tokens` tokens is published within it, unless it fails."""
        began = time.monotonic()
        with self._lock:
            if not self._publishing:
                self._published = began
            self._publishing += 1
            self._write()
        done = 0
        try:
            yield
            done = 1
        finally:
            with self._lock:
                self._published = time.monotonic()
                self._publish = _recent(self._publish, self._published - began)
                self._publishing -= 1
                self._samples += done
                self._tokens += done * tokens
                self._write()

    def _write(self) -> None:
        _PLACE.pack_into(
            self._buffer, self._offset, self._pid, self._requests, self._heard, self._publishing, self._published,
            self._answer, self._publish,
        )  # fmt: skip
        _TOTALS.pack_into(self._buffer, self._offset + _PLACE.size, self._samples, self._tokens)


class Gauges:
    """The places of all processes, in `path`, made on first use."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a+b")
        with self._locked():
            if os.fstat(self._file.fileno()).st_size < _SIZE * SLOTS:
                self._file.truncate(_SIZE * SLOTS)
        self._map = mmap.mmap(self._file.fileno(), _SIZE * SLOTS)

    def claim(self) -> Gauge:
        """A place for this process, for as long as it lives. Raises RuntimeError where all are taken."""
        with self._locked():
            place = next((place for place in range(SLOTS) if not is_alive(self._pid(place))), None)
            if place is None:
                raise RuntimeError(f"more than {SLOTS} processes share one engine")
            return Gauge(self._map, place * _SIZE)

    def readings(self) -> list[Reading]:
        return [
            Reading(*_PLACE.unpack_from(self._map, place * _SIZE))
            for place in range(SLOTS)
            if is_alive(self._pid(place))
        ]

    def totals(self) -> Totals:
        """Of the dead as well."""
        found: Sequence[tuple[int, int]] = [
            _TOTALS.unpack_from(self._map, place * _SIZE + _PLACE.size) for place in range(SLOTS)
        ]
        return Totals(sum(samples for samples, _ in found), sum(tokens for _, tokens in found))

    def _pid(self, place: int) -> int:
        return int(_PLACE.unpack_from(self._map, place * _SIZE)[0])

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)


def _recent(mean: float, seconds: float) -> float:
    """`mean` after one more sample. From 0, so that one slow sample at the beginning is no rule."""
    return mean + (seconds - mean) / RECENT
