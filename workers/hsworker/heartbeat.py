"""A worker's signs of life, every few seconds: that it lives, what it has in flight, how its engine and volume fare."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from hsqueue.contracts.errors import HsqueueError
from hsqueue.ledger.connect import connect, redis_errors
from hsqueue.ledger.signs import give_sign, take_sign_back
from hsqueue.monitoring.limits import HEARTBEAT
from hsworker.gauges import Reading
from hsworker.life import Life, State
from hsworker.station import Station
from hsworker.turns import Slot

log = logging.getLogger(__name__)

WINDOW_SECONDS = 300.0
LEAVE_SECONDS = 2.0


class Rate:
    """Tokens a second over the last five minutes, from a counter looked at now and then."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def see(self, now: float, tokens: int) -> float:
        """now: seconds of any clock. tokens: the counter, which never falls."""
        self._seen.append((now, tokens))
        while now - self._seen[0][0] > WINDOW_SECONDS:
            self._seen.popleft()
        begin, first = self._seen[0]
        return (tokens - first) / (now - begin) if now > begin else 0.0


def in_flight(slots: Sequence[Slot]) -> dict[str, Any]:
    """What the worker's shards have under way."""
    return {
        "requests": sum(s.requests for s in slots),
        "tokens": sum(s.tokens for s in slots),
        "dump_bytes": sum(s.bytes for s in slots),
        "leases": sum(s.fence > 0 for s in slots),
    }


def faring(readings: Sequence[Reading], now: float) -> dict[str, Any]:
    """How its engine and its volume fare. now: seconds of the clock of `readings`."""
    asked, publishing = any(r.requests for r in readings), any(r.publishing for r in readings)
    return {
        "engine_quiet": round(now - max(r.heard for r in readings), 1) if asked else 0.0,
        "volume_quiet": round(now - max(r.published for r in readings), 1) if publishing else 0.0,
        "answer_seconds": round(max((r.answer_seconds for r in readings), default=0.0), 3),
        "publish_seconds": round(max((r.publish_seconds for r in readings), default=0.0), 3),
    }


class Heartbeat(threading.Thread):
    """A thread of its own, which waits for neither engine nor volume. life: how the worker stands."""

    def __init__(self, station: Station, queue: str, life: Callable[[], Life]) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self.station, self.queue, self.life = station, queue, life
        self.rate = Rate()
        self._stopping, self._left, self._wake = threading.Event(), threading.Event(), threading.Event()

    def run(self) -> None:
        while not self._left.is_set():
            try:
                self._beat()
            except HsqueueError as error:
                log.warning("no sign of life given: %s", error)
            except Exception:
                # A worker that ends here would look dead while it works.
                log.exception("unexpected error in the worker's heartbeat; it goes on")
            self._wake.wait(HEARTBEAT)
            self._wake.clear()

    def tell(self) -> None:
        """Says at once how the worker stands."""
        self._wake.set()

    def stop(self) -> None:
        """The worker is ending: said until ``leave``, since what it has in hand may take a while."""
        self._stopping.set()
        self.tell()

    def leave(self) -> None:
        """The worker ends in an orderly way, so nobody has to miss it."""
        self._left.set()
        self.tell()
        # A Redis that is away keeps no worker from ending.
        self.join(LEAVE_SECONDS)
        url = self.station.redis_url
        with contextlib.suppress(HsqueueError), redis_errors(url), connect(url, retries=0) as client:
            take_sign_back(client, self.station.pin.worker)

    def _beat(self) -> None:
        with redis_errors(self.station.redis_url):
            give_sign(self.station.client, self.station.pin.worker, json.dumps(self._words()))

    def _words(self) -> dict[str, Any]:
        station, life = self.station, self.life()
        files = os.statvfs(station.pin.dump_dir)
        totals = station.gauges.totals()
        now = time.monotonic()
        return {
            "time": time.time(), "host": socket.gethostname(), "pid": os.getpid(),
            "engine": station.pin.engine_url, "queue": self.queue, "gpu": station.card.device,
            "state": State.STOPPING.value if self._stopping.is_set() else life.state.value,
            "paused": life.reason, "waits_for": life.pause.kind if life.pause else "",
            **in_flight(station.budget.slots()), **faring(station.gauges.readings(), now),
            "dump_limit": station.settings.max_dump_bytes,
            "dump_free": files.f_bavail * files.f_frsize, "dump_total": files.f_blocks * files.f_frsize,
            "tokens_per_second": round(self.rate.see(now, totals.tokens), 1), "published": totals.samples,
        }  # fmt: skip
