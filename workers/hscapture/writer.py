"""Dumps written behind the scheduler's back, by a few threads and within bounded memory."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from hscapture.assemble import Dump
from hscapture.complaints import Complaints

PENDING_BYTES = 2 << 30


@dataclass(frozen=True, slots=True)
class WriterStats:
    """written, failed: dumps. bytes: of states in written dumps. waited: seconds that submitters were held up."""

    written: int
    failed: int
    bytes: int
    waited: float


class DumpWriter:
    """Hands dumps to `write` on background threads.

    write: makes one dump visible or raises; a layout's method. remove: takes away what it has made, by rid.
    pending_bytes: states that may wait or be in writing; a submitter waits while there is no room, which slows the
    server instead of growing it. Whatever `write` raises is told to `complaints` and costs that dump only.
    """

    def __init__(
        self,
        write: Callable[[Dump], None],
        threads: int = 1,
        pending_bytes: int = PENDING_BYTES,
        remove: Callable[[str], None] = lambda rid: None,  # noqa: ARG005
        complaints: Complaints | None = None,
    ) -> None:
        self._write, self._remove, self._limit = write, remove, pending_bytes
        self._queue: deque[Dump] = deque()
        self._writing: set[str] = set()
        self._unwanted: set[str] = set()
        self._changed = threading.Condition()
        self._pending = 0
        self._closed = False
        self._stats = WriterStats(0, 0, 0, 0.0)
        self._complaints = complaints or Complaints()
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

    def discard(self, rid: str) -> None:
        """Nobody will read the dump of this request: forgotten where it waits, removed where it is or will be written.
        Returns at once.
        """
        with self._changed:
            waiting = [dump for dump in self._queue if dump.rid == rid]
            for dump in waiting:
                self._queue.remove(dump)
                self._pending -= dump.nbytes
            if rid in self._writing:
                self._unwanted.add(rid)
            self._changed.notify_all()
        for dump in waiting:
            dump.release()
        self._remove(rid)

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
                self._writing.add(dump.rid)
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
                self._writing.discard(dump.rid)
                unwanted = dump.rid in self._unwanted
                self._unwanted.discard(dump.rid)
                self._changed.notify_all()
            if unwanted:
                self._remove(dump.rid)

    def _count(self, written: int = 0, failed: int = 0, nbytes: int = 0, waited: float = 0.0) -> None:
        with self._changed:
            old = self._stats
            self._stats = WriterStats(
                old.written + written, old.failed + failed, old.bytes + nbytes, old.waited + waited
            )
