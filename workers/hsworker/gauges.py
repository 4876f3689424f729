"""How a worker's processes fare, for its main process to tell: a small file that all of them map.

Each process writes a place of its own and nobody else's, so no lock is taken for a sample.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path

from hsworker.budget import SLOTS, is_alive

_PLACE = struct.Struct("<qqdqddd")
_TOTALS = struct.Struct("<qq")
_SIZE = _PLACE.size + _TOTALS.size
WRITE_SECONDS = 0.5
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


@dataclass(slots=True)
class Books:
    """What a process's events add up to; one thread keeps them. Fields as those of Reading and Totals."""

    pid: int
    requests: int = 0
    heard: float = 0.0
    under_way: int = 0
    last: float = 0.0
    answer_seconds: float = 0.0
    publish_seconds: float = 0.0
    samples: int = 0
    tokens: int = 0

    def asked(self, at: float, _: float) -> None:
        if not self.requests:
            self.heard = at
        self.requests += 1

    def answered(self, at: float, seconds: float) -> None:
        self.requests -= 1
        self.heard = at
        self.answer_seconds = _recent(self.answer_seconds, seconds)

    def gave_up(self, _: float, __: float) -> None:
        self.requests -= 1

    def publishing(self, at: float, _: float) -> None:
        if not self.under_way:
            self.last = at
        self.under_way += 1

    def published(self, at: float, seconds: float) -> None:
        self.under_way -= 1
        self.last = at
        self.publish_seconds = _recent(self.publish_seconds, seconds)

    def done(self, _: float, tokens: float) -> None:
        self.samples += 1
        self.tokens += int(tokens)


class Gauge(threading.Thread):
    """One process's place. Any thread may tell what happens, at the cost of one append to a list: a lock that many
    threads want costs far more than what it guards. This thread adds it up and writes it twice a second.

    buffer: where the place lies, at `offset`; its own by default.
    """

    def __init__(self, buffer: bytearray | mmap.mmap | None = None, offset: int = 0) -> None:
        super().__init__(name="gauge", daemon=True)
        self._buffer = bytearray(_SIZE) if buffer is None else buffer
        self._offset = offset
        self._events: deque[tuple[Callable[[Books, float, float], None], float, float]] = deque()
        samples, tokens = _TOTALS.unpack_from(self._buffer, offset + _PLACE.size)
        self._books = Books(os.getpid(), samples=samples, tokens=tokens)
        self.write()

    def asked(self) -> None:
        """A request is on its way."""
        self._events.append((Books.asked, time.monotonic(), 0.0))

    def answered(self, seconds: float | None) -> None:
        """seconds: that the answer took; None where none came."""
        if seconds is None:
            self._events.append((Books.gave_up, 0.0, 0.0))
        else:
            self._events.append((Books.answered, time.monotonic(), seconds))

    @contextmanager
    def publication(self, tokens: int) -> Iterator[None]:
        """A sample of `tokens` tokens is published within it, unless it fails."""
        began = time.monotonic()
        self._events.append((Books.publishing, began, 0.0))
        try:
            yield
            self._events.append((Books.done, 0.0, tokens))
        finally:
            now = time.monotonic()
            self._events.append((Books.published, now, now - began))

    def run(self) -> None:
        while True:
            time.sleep(WRITE_SECONDS)
            self.write()

    def write(self) -> None:
        """Only by this thread, or before it is started."""
        books = self._books
        while self._events:
            happened, at, figure = self._events.popleft()
            happened(books, at, figure)
        *place, samples, tokens = astuple(books)
        _PLACE.pack_into(self._buffer, self._offset, *place)
        _TOTALS.pack_into(self._buffer, self._offset + _PLACE.size, samples, tokens)


class Gauges:
    """The places of all processes, in `path`, made on first use."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a+b")
        with self._locked():
            if os.fstat(self._file.fileno()).st_size < _SIZE * SLOTS:
                self._file.truncate(_SIZE * SLOTS)
        self._map = mmap.mmap(self._file.fileno(), _SIZE * SLOTS)

    def claim(self) -> Gauge:
        """A place for this process, for as long as it lives; to be started. Raises RuntimeError where all are taken."""
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
