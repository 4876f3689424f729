"""Where a lease's time went and what it met: kept for the shard's manifest, and told as counters while it runs."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable

from hsqueue.contracts.errors import HsqueueError
from hsqueue.contracts.meters import ENGINE, STAGES, VOLUME
from hsqueue.contracts.sample import Published
from hsqueue.contracts.work import Work
from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.records import Lease
from hsworker.times import Times, complaint

log = logging.getLogger(__name__)

METER_SECONDS = 5.0
"""Seconds between two additions to the counters in Redis."""


class Account:
    """Of one lease. times: where its samples' time goes. retries: by error's name, samples that are asked for again."""

    def __init__(self, ledger: Ledger, lease: Lease, times: Times) -> None:
        self._ledger, self._lease, self._times = ledger, lease, times
        self.retries: Counter[str] = Counter()
        self._so_far = Work()
        self._told_at = time.monotonic()
        self._complained = False

    def open(self) -> None:
        """Kept from the beginning: a worker that dies tells nobody that it had the shard."""
        lease = self._lease
        self._so_far = self._ledger.work(lease.shard).opened(lease.worker, time.time())
        self.keep(self._so_far)

    def keep(self, work: Work) -> None:
        """For the shard's next lease."""
        self._ledger.keep_work(self._lease.shard, work)

    def closed(self, done: Iterable[Published], *, is_engine_down: bool) -> Work:
        """done: samples of this lease."""
        done = list(done)
        seconds = {stage: self._times[stage].seconds for stage in STAGES}
        tokens = sum(sample.tokens for sample in done)
        return self._so_far.closed(time.time(), len(done), tokens, seconds, self.retries, is_engine_down)

    def tell_when_due(self) -> None:
        if time.monotonic() - self._told_at >= METER_SECONDS:
            self.tell()

    def tell(self) -> None:
        """Passes on what the lease's counters grew by. They are figures for people: Redis may lose them."""
        self._told_at = time.monotonic()
        self._complain_of_the_volume()
        increments = self._times.untold()
        if not increments:
            return
        try:
            self._ledger.add(self._lease.worker, increments)
            self._times.tell(increments)
        except HsqueueError as error:
            log.debug("shard %d: counters are told later: %s", self._lease.shard, error)

    def _complain_of_the_volume(self) -> None:
        """Once a lease: a slow volume stops nothing, so nobody would ask why."""
        text = "" if self._complained else complaint(self._times[ENGINE], self._times[VOLUME])
        if text:
            self._complained = True
            log.warning("run %s shard %d: %s", self._lease.run, self._lease.shard, text)
