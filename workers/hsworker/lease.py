"""Keeps a shard's lease alive, and says at once when it is lost."""

from __future__ import annotations

import logging
import threading
import time

from hsqueue.contracts.errors import LeaseLost, RedisUnreachable
from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.records import Lease

log = logging.getLogger(__name__)


class LeaseKeeper:
    """Renews `lease` at a third of `ttl` seconds, in a thread of its own, as a context manager.

    asked: ``boot_seconds`` before the lease was asked for, since its life may have begun any time after that;
    None: now.

    ``check`` may be called from any thread. It also fails once the lease must have expired by this machine's
    own clock, which goes on while a process is frozen; a thawed worker therefore publishes nothing.
    """

    def __init__(self, ledger: Ledger, lease: Lease, ttl: float, asked: float | None = None) -> None:
        self.ledger, self.lease, self.ttl = ledger, lease, ttl
        self._deadline = (boot_seconds() if asked is None else asked) + ttl
        self._lost = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"lease-{lease.shard}", daemon=True)

    def __enter__(self) -> LeaseKeeper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def valid(self) -> bool:
        return not self._lost.is_set() and boot_seconds() < self._deadline

    def check(self) -> None:
        """Raises LeaseLost where this worker may no longer publish for the shard."""
        if not self.valid:
            raise LeaseLost(
                f"the lease of shard {self.lease.shard} is lost", do="Nothing; another worker takes the shard."
            )

    def _run(self) -> None:
        pause = self.ttl / 3
        while not self._stop.wait(pause):
            asked = boot_seconds()
            try:
                if not self.ledger.renew(self.lease, self.ttl):
                    self._lost.set()
                    return
                self._deadline = asked + self.ttl
                pause = self.ttl / 3
            except RedisUnreachable as error:
                more = {"run": self.lease.run, "shard": self.lease.shard}
                log.warning("run %s shard %d: lease not renewed: %s", *more.values(), error, extra=more)
                pause = min(1.0, self.ttl / 10)


def boot_seconds() -> float:
    """Seconds of a clock that goes on while the machine sleeps and while a process is frozen."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
