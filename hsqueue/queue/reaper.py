"""Sends again what was lost: shards without a lease that no message stands for any more.

Any worker or producer may reap; a lease of its own, in Redis, lets one do it at a time.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import cast

import redis
from celery import Celery

from hsqueue.contracts.errors import HsqueueError, RunNotFound
from hsqueue.contracts.fingerprint import RunInfo
from hsqueue.contracts.rid import RUN_ID
from hsqueue.ledger.connect import redis_errors
from hsqueue.ledger.keys import REAPER, RUNS
from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.rebuild import reconcile
from hsqueue.logs import about
from hsqueue.planning.plan import load_run
from hsqueue.queue.app import queue_key
from hsqueue.queue.producer import send_shards
from hsqueue.store.files import require_volume
from hsqueue.store.layout import RunLayout

log = logging.getLogger(__name__)


def reap_run(app: Celery, ledger: Ledger, info: RunInfo, grace: float) -> int:
    """Sends again the lost shards of one run. Returns how many.

    grace: seconds. A message can be lost without a trace, so a shard that counts as queued is sent again once
    it has been so for longer than this *and* its queue is empty.
    """
    with redis_errors(ledger.url):
        waiting = ledger.client.llen(queue_key(info.fingerprint.target.queue))
    grace_now = grace if waiting == 0 else None
    if not ledger.standing(info.shards).may_have_lost(grace_now):
        return 0
    sent = send_shards(app, ledger, info, ledger.lost_shards(info.shards), None)
    return sent if grace_now is None else sent + _send_overdue(app, ledger, info, grace_now)


def _send_overdue(app: Celery, ledger: Ledger, info: RunInfo, grace: float) -> int:
    count = 0
    # What is sent again is overdue no more, so each look finds others.
    while sent := send_shards(app, ledger, info, ledger.overdue_shards(grace), grace):
        count += sent
    return count


class Reaper(threading.Thread):
    """Looks after every run that this Redis knows, every `interval` seconds, and reaps them while it has the lease.

    volumes: directories that runs may lie in, none for anywhere; what Redis says of others counts for nothing.
    """

    def __init__(
        self,
        app: Celery,
        client: redis.Redis,
        url: str,
        grace: float,
        interval: float = 2.0,
        volumes: Sequence[Path] = (),
    ) -> None:
        super().__init__(name="reaper", daemon=True)
        self.app, self.client, self.url, self.grace, self.interval = app, client, url, grace, interval
        self.volumes = volumes
        self.token = uuid.uuid4().hex
        self.stopping = threading.Event()
        self._infos: dict[str, RunInfo] = {}
        self._roots: dict[str, Path] = {}

    def run(self) -> None:
        while not self.stopping.wait(self.interval):
            try:
                runs = self.look()
                if self._holds_lease():
                    self.reap(runs)
            except HsqueueError as error:
                log.warning("reaper: %s", error)
            except Exception:
                # A thread that ends here would leave lost shards lost with nothing said.
                log.exception("reaper: unexpected error; it tries again in %.0f s", self.interval)

    def remember(self, info: RunInfo, layout: RunLayout) -> None:
        """Makes a run known before it is seen in Redis, so that it is rebuilt should Redis lose it."""
        self._infos[info.run], self._roots[info.run] = info, layout.root

    def stop(self) -> None:
        self.stopping.set()

    def look(self) -> dict[str, Path]:
        """Remembers the runs that this Redis knows, and rebuilds those that it has forgotten. Returns where they lie.

        Every reaper looks, whoever has the lease: after a loss that may be one who had never seen the run.
        """
        with redis_errors(self.url):
            runs = cast(dict[str, str], self.client.hgetall(RUNS))
        self._rebuild_lost(runs)
        found = {run: Path(directory) for run, directory in runs.items() if directory}
        for run, directory in found.items():
            self._run_info(run, directory)
        return found

    def reap(self, runs: Mapping[str, Path]) -> int:
        """One round over `runs`, by the one with the lease. Returns how many shards were sent again."""
        count = 0
        for run, directory in runs.items():
            info = self._run_info(run, directory)
            if info is not None:
                count += self._apart(run, partial(self._reap_run, run, info))
        return count

    def _reap_run(self, run: str, info: RunInfo) -> int:
        sent = reap_run(self.app, Ledger(self.client, self.url, run), info, self.grace)
        if sent:
            log.info("run %s: %d lost shards sent again", run, sent)
        return sent

    def _rebuild(self, run: str, info: RunInfo) -> int:
        reconcile(self.client, self.url, RunLayout(self._roots[run]), info)
        return 0

    def _apart(self, run: str, work: Callable[[], int]) -> int:
        """One run's trouble keeps no other from being reaped."""
        with about(run=run):
            try:
                return work()
            except HsqueueError as error:
                log.warning("run %s: %s", run, error)
                return 0

    def _rebuild_lost(self, runs: dict[str, str]) -> None:
        """Runs that this process has seen and Redis has forgotten; dropped ones are still known, with no directory."""
        for run, info in self._infos.items():
            if run not in runs:
                log.warning("run %s: Redis lost its ledger; rebuilding it from the volume", run, extra={"run": run})
                self._apart(run, partial(self._rebuild, run, info))

    def _run_info(self, run: str, directory: Path) -> RunInfo | None:
        if run not in self._infos:
            try:
                root = self._trusted(run, directory)
                info = load_run(root)
                if info.run != run:
                    raise RunNotFound(f"{root} holds another run", expected=run, found=info.run)
            except HsqueueError as error:
                log.debug("run %r is not readable here: %s", run, error)
                return None
            self._infos[run], self._roots[run] = info, root
        return self._infos[run]

    def _trusted(self, run: str, root: Path) -> Path:
        """What Redis says is foreign input: only a full path, within the volumes, under a possible name."""
        if not RUN_ID.fullmatch(run) or not root.is_absolute() or "\0" in str(root):
            raise RunNotFound("Redis names an impossible run", found=repr((run, str(root)))[:120])
        require_volume(root, self.volumes)
        return root

    def _holds_lease(self) -> bool:
        milliseconds = int(self.interval * 3000)
        with redis_errors(self.url):
            # Asked for first: of many reapers all but one are told here that another has it.
            holder = self.client.get(REAPER)
            if holder is None:
                return bool(self.client.set(REAPER, self.token, nx=True, px=milliseconds))
            return holder == self.token and bool(self.client.pexpire(REAPER, milliseconds))
