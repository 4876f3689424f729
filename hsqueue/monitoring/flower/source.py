"""Asks the ledger for what the pages show. Blocks; called in threads."""

from __future__ import annotations

import threading
import time

from hsqueue.contracts.errors import LedgerDamaged, RunNotFound
from hsqueue.contracts.rid import RUN_ID
from hsqueue.ledger.connect import connect, redis_errors
from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.records import LedgerInfo, worker_of
from hsqueue.monitoring.failures import Failure, newest_failures
from hsqueue.monitoring.flower.figures import (
    STATES,
    Json,
    damaged_json,
    given_up_json,
    newest_json,
    run_json,
    totals,
    troubles_json,
    workers_json,
)
from hsqueue.monitoring.shards import shard_states
from hsqueue.monitoring.snapshot import Snapshot, by_redis, every_worker, overview

SHARED_SECONDS = 0.5
"""An overview this fresh serves everybody who looks, so that many open pages ask Redis as often as one."""
NEWEST = 20
"""Failures on a page."""
MOST_OF_A_SHARD = 200
"""Failures shown of one shard."""
MOST_LEDGERS = 1000


class Source:
    """Every method raises RedisUnreachable, LedgerDamaged, and RunNotFound where it names a run."""

    def __init__(self, url: str) -> None:
        self.url = url
        # Pages ask again by themselves, and a thread that waits is one less for the rest of Flower.
        self.client = connect(url, retries=0)
        self._ledgers: dict[str, Ledger] = {}
        self._lock = threading.Lock()
        self._shared: tuple[float, Json] = (float("-inf"), {})

    def overview(self) -> Json:
        with self._lock:
            seen, answer = self._shared
            if time.monotonic() - seen > SHARED_SECONDS:
                answer = self._overview()
                self._shared = time.monotonic(), answer
            return answer

    def _overview(self) -> Json:
        runs = [run for run in overview(self.client, self.url) if RUN_ID.fullmatch(run.run)]
        unfinished: list[Snapshot] = []
        failures: list[tuple[str, Failure]] = []
        damaged: list[Json] = []
        for run in runs:
            try:
                if run.failed + run.skipped:
                    failures += [(run.run, failure) for failure in self._newest(run.run)]
                if run.pending and (found := by_redis(self._ledger(run.run))) is not None:
                    unfinished.append(found)
            except LedgerDamaged as error:
                # One run's ledger hides no other's.
                damaged.append(damaged_json(run.run, str(error)))
        return {
            "totals": totals(runs), "runs": [run_json(run) for run in runs],
            "workers": workers_json(every_worker(self.client, self.url), unfinished),
            "troubles": damaged + troubles_json(unfinished), "failures": newest_json(failures, self._now(), NEWEST),
        }  # fmt: skip

    def run(self, run: str) -> Json:
        found = by_redis(self._ledger(run))
        if found is None:
            raise self._unknown(run)
        return {
            "totals": totals([found]), "run": run_json(found),
            "workers": workers_json(found.workers, [found]), "troubles": troubles_json([found]),
            "failures": newest_json(((run, failure) for failure in self._newest(run)), self._now(), NEWEST),
        }  # fmt: skip

    def shards(self, run: str) -> Json:
        """states: a letter a shard."""
        ledger, info = self._open(run)
        return {"states": shard_states(ledger, info.shards)}

    def shard(self, run: str, shard: int) -> Json:
        ledger, info = self._open(run)
        if shard >= info.shards:
            raise RunNotFound(f"run {run} has no shard {shard}", expected=f"0 to {info.shards - 1}", found=shard)
        indices = range(shard * info.shard_size, min((shard + 1) * info.shard_size, info.samples))
        given_up = sorted(ledger.given_up(indices).values(), key=lambda given: given.index)
        return {
            "shard": shard, "state": STATES[shard_states(ledger, info.shards)[shard]], "first": indices.start,
            "samples": len(indices), "done": len(ledger.done_in(indices)), "given_up": len(given_up),
            "worker": worker_of(ledger.live_holders().get(shard, "")),
            "leases": ledger.lease_attempts([shard]).get(shard, 0),
            "failures": [given_up_json(run, shard, given) for given in given_up[:MOST_OF_A_SHARD]],
        }  # fmt: skip

    def _newest(self, run: str) -> list[Failure]:
        ledger, info = self._open(run)
        return newest_failures(ledger, info.shard_size, NEWEST)

    def _now(self) -> float:
        with redis_errors(self.url):
            seconds, micros = self.client.time()
        return float(seconds) + micros / 1e6

    def _open(self, run: str) -> tuple[Ledger, LedgerInfo]:
        ledger = self._ledger(run)
        info = ledger.info()
        if info is None:
            raise self._unknown(run)
        return ledger, info

    def _ledger(self, run: str) -> Ledger:
        """Kept, since a ledger reads its scripts when it is made."""
        if run not in self._ledgers:
            if len(self._ledgers) >= MOST_LEDGERS:
                self._ledgers.clear()
            self._ledgers[run] = Ledger(self.client, self.url, run)
        return self._ledgers[run]

    def _unknown(self, run: str) -> RunNotFound:
        return RunNotFound(f"Redis knows no run {run}", do="Run hsqueue enqueue RUN; it rebuilds the ledger.")
