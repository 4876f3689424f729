"""Dumps written behind the scheduler's back, by a few threads and within bounded memory."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from hscapture.assemble import Dump
from hsqueue.contracts.errors import HsqueueError

log = logging.getLogger(__name__)

PENDING_BYTES = 2 << 30
QUIET_SECONDS = 10.0
"""A cause is logged once, then at most this often with a count: a full volume fails thousands of dumps."""


@dataclass(frozen=True, slots=True)
class WriterStats:
    """written, failed: dumps. bytes: of states in written dumps. waited: seconds that submitters were held up."""

    written: int
    failed: int
    bytes: int
    waited: float


class DumpWriter:
    """Hands dumps to `write` on background threads.

    write: makes one dump visible or raises; a layout's method. pending_bytes: states that may wait or be
    in writing; a submitter waits while there is no room, which slows the server instead of growing it.
    Whatever `write` raises is logged in one line and costs that dump only.
    """

    def __init__(self, write: Callable[[Dump], None], threads: int = 1, pending_bytes: int = PENDING_BYTES) -> None:
        self._write, self._limit = write, pending_bytes
        self._queue: deque[Dump] = deque()
        self._changed = threading.Condition()
        self._pending = 0
        self._closed = False
        self._stats = WriterStats(0, 0, 0, 0.0)
        self._complaints = Complaints()
        self._threads = [
            threading.Thread(target=self._run, name=f"dump-writer-{n}", daemon=True) for n in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def stats(self) -> WriterStats:
        return self._stats

    def submit(self, dump: Dump) -> None:
        """Takes the dump over; returns at once unless too much is pending. After ``close`` it is released."""
        nbytes = dump.nbytes
        began = time.monotonic()
        with self._changed:
            # One dump larger than the limit still passes when it is alone; it could never pass otherwise.
            self._changed.wait_for(lambda: self._closed or self._pending == 0 or self._pending + nbytes <= self._limit)
            if not self._closed:
                self._pending += nbytes
                self._queue.append(dump)
                self._count(waited=time.monotonic() - began)
                self._changed.notify_all()
                return
        dump.release()

    def drain(self, timeout: float | None = None) -> bool:
        """Waits until nothing is pending. timeout: seconds. False where something still is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._pending == 0 and not self._queue, timeout)

    def close(self, timeout: float = 10.0) -> None:
        """Writes what is pending, for at most `timeout` seconds, and ends the threads."""
        self.drain(timeout)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closed)
                if not self._queue:
                    return
                dump = self._queue.popleft()
            self._write_one(dump)

    def _write_one(self, dump: Dump) -> None:
        nbytes = dump.nbytes
        try:
            dump.ready()
            self._write(dump)
            self._count(written=1, nbytes=nbytes)
        except Exception as error:  # noqa: BLE001 - the server must go on whatever the volume does
            self._count(failed=1)
            self._complaints.about(dump.rid, error)
        finally:
            dump.release()
            with self._changed:
                self._pending -= nbytes
                self._changed.notify_all()

    def _count(self, written: int = 0, failed: int = 0, nbytes: int = 0, waited: float = 0.0) -> None:
        with self._changed:
            old = self._stats
            self._stats = WriterStats(
                old.written + written, old.failed + failed, old.bytes + nbytes, old.waited + waited
            )


class Complaints:
    """One log line for each cause, repeated at most every QUIET_SECONDS with the number left out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last: dict[object, float] = {}
        self._silent: dict[object, int] = {}

    def about(self, rid: str, error: Exception) -> None:
        cause = (type(error), getattr(error, "errno", None))
        with self._lock:
            now = self._clock()
            if now - self._last.get(cause, float("-inf")) < QUIET_SECONDS:
                self._silent[cause] = self._silent.get(cause, 0) + 1
                return
            self._last[cause] = now
            silent = self._silent.pop(cause, 0)
        text = str(error) if isinstance(error, HsqueueError) else f"{type(error).__name__}: {error}"
        more = f" ({silent} more like this)" if silent else ""
        log.error("no dump of %.80s: %s%s", rid, text, more)
