"""One process of a pinned worker: its engine, its budget, and the runs that it has opened."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from hsqueue.contracts.errors import (
    EngineUnfit,
    FingerprintMismatch,
    HsqueueError,
    Kind,
    LeaseLost,
    RunNotFound,
    SamplesFailed,
    StopError,
    UsageError,
    VolumeUnusable,
)
from hsqueue.contracts.fingerprint import RunInfo
from hsqueue.contracts.message import ShardMessage
from hsqueue.ledger.connect import connect
from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.rebuild import reconcile
from hsqueue.ledger.records import Refusal
from hsqueue.logs import about
from hsqueue.planning.plan import load_run
from hsqueue.planning.target import read_card
from hsqueue.settings import Settings
from hsqueue.store.files import require_volume
from hsqueue.store.layout import RunLayout
from hsworker.budget import Budget, Share
from hsworker.counter_dumps import CounterDumps
from hsworker.dumps import DumpSource, RidDumps, sweep
from hsworker.engine import EngineClient
from hsworker.gauges import Gauge, Gauges
from hsworker.lease import LeaseKeeper, boot_seconds
from hsworker.life import Pause
from hsworker.outcome import Outcome
from hsworker.pause import read_pause, write_pause
from hsworker.pinning import Pin
from hsworker.sample import Way
from hsworker.shard import ShardRun
from hsworker.turns import Limits

log = logging.getLogger(__name__)

TURN_POLL = 0.25
"""Seconds until a look whether the worker is paused, or an elder shard's process was killed."""
COUNTER_SETTLE = 0.25
COUNTER_PATIENCE = 10.0


@dataclass(frozen=True, slots=True)
class OpenRun:
    info: RunInfo
    layout: RunLayout
    ledger: Ledger


class Station:
    """What the tasks of one process share. redis_url: of the ledger."""

    def __init__(self, pin: Pin, settings: Settings, redis_url: str) -> None:
        self.pin, self.settings, self.redis_url = pin, settings, redis_url
        self.client = connect(redis_url)
        self.card = read_card(pin.dump_dir)
        self.engine = EngineClient(
            pin.engine_url,
            connections=settings.max_in_flight + settings.publishers,
            timeout=settings.request_timeout,
        )
        limits = Limits(settings.max_in_flight, settings.max_tokens_in_flight, settings.max_dump_bytes)
        self.budget = Budget(pin.budget_path, limits)
        self.publishing = threading.BoundedSemaphore(settings.publishers)
        self.gauges = Gauges(pin.gauges_path)
        self.dumps = self._dump_source()
        self._runs: dict[str, OpenRun] = {}
        self._roots: dict[str, Path] = {}

    @cached_property
    def gauge(self) -> Gauge:
        """This process's own; the main process has none, since it works no shard."""
        claimed = self.gauges.claim()
        claimed.start()
        return claimed

    def work(self, message: ShardMessage, report: Callable[[int, int, int], None]) -> str:
        """Handles one message, from its turn to its shard's end. Returns what happened, for people.

        Raises SamplesFailed where the shard has ended with failures; otherwise nothing that a message deserves to be
        sent again for: the ledger and the reaper see to that.
        """
        with about(run=message.run, shard=message.shard):
            return self._work(message, report)

    def _work(self, message: ShardMessage, report: Callable[[int, int, int], None]) -> str:
        share = self.budget.open()
        try:
            if not self._await_turn(share):
                return self._hand_back(message, "the worker is paused or stopping")
            self._refresh_card()
            run = self._open(message.run)
            outcome = self._lease_and_run(run, message.shard, share, report)
        except HsqueueError as error:
            log.error("run %s shard %d: %s", message.run, message.shard, error)
            self._pause_for(error, message)
            return self._hand_back(message, str(error))
        finally:
            share.close()
        if isinstance(outcome, Refusal):
            return f"skipped: {outcome.why} {outcome.holder}".rstrip()
        if outcome.stopped_by is not None:
            self._pause_for(outcome.stopped_by, message)
        # Also after a shard that ended well: its run may be lost a moment later, and nothing of it asked for again.
        self._rebuild_if_lost(run)
        if outcome.ended and outcome.failed:
            raise SamplesFailed(f"{outcome}: {outcome.reasons}")
        return str(outcome)

    def _lease_and_run(
        self, run: OpenRun, shard: int, share: Share, report: Callable[[int, int, int], None]
    ) -> Outcome | Refusal:
        if shard >= run.info.shards:
            raise UsageError(f"a message names shard {shard}, run {run.info.run} has {run.info.shards}")
        asked = boot_seconds()
        granted = run.ledger.acquire(shard, self.pin.owner, self.settings.lease_ttl)
        if isinstance(granted, Refusal):
            if granted.why == "unknown":
                raise StopError(f"Redis lost run {run.info.run}", do=f"Run hsqueue enqueue {run.layout.root}.")
            return granted
        with LeaseKeeper(run.ledger, granted, self.settings.lease_ttl, asked) as keeper:

            def way(answered: Callable[[], None]) -> Way:
                return Way(
                    run=run.info.run, shard=shard, fence=granted.fence, target=run.info.fingerprint.target,
                    card=self.card, layout=run.layout, engine=self.engine, dumps=self.dumps, share=share,
                    dump_timeout=self.settings.dump_timeout, is_same_engine=self._is_same_engine,
                    may_publish=keeper.check, answered=answered, publishing=self.publishing, gauge=self.gauge,
                )  # fmt: skip

            shard_run = ShardRun(
                run.info, run.layout, run.ledger, keeper, share, self.settings, way, report, self.pin.stop_path.exists
            )
            outcome = shard_run.run()
        level = logging.INFO if outcome.stopped_by is None else logging.WARNING
        times = str(shard_run.way.times)
        spent = f" ({times} a sample)" if times else ""
        log.log(level, "run %s shard %d lease %d: %s%s", run.info.run, shard, granted.fence, outcome, spent)
        return outcome

    # --- the engine --------------------------------------------------------------------------------------

    def _dump_source(self) -> DumpSource:
        if self.pin.layout == "rid":
            return RidDumps(self.pin.dump_dir)
        patience = min(COUNTER_PATIENCE, self.settings.dump_timeout)
        return CounterDumps(self.pin.dump_dir, self.card, self.pin.workspace, COUNTER_SETTLE, patience)

    def _is_same_engine(self) -> bool:
        try:
            return read_card(self.pin.dump_dir).instance == self.card.instance
        except HsqueueError:
            return False

    def _refresh_card(self) -> None:
        """A restarted engine has a new card; one that is something else now is refused."""
        card = read_card(self.pin.dump_dir)
        different = self.card.target.differences(card.target)
        if different:
            listed = "; ".join(f"{name}: was {a}, is {b}" for name, (a, b) in different.items())
            raise EngineUnfit(
                f"the engine at {self.pin.engine_url} was restarted as something else ({listed})",
                do="Restart it as it was, or restart this worker to serve runs of the new kind.",
            )
        self.card = card

    # --- runs --------------------------------------------------------------------------------------------

    def _open(self, run: str) -> OpenRun:
        ledger = Ledger(self.client, self.redis_url, run)
        if run in self._runs:
            self._rebuild_if_lost(self._runs[run])
        known = ledger.info()
        if known is None:
            raise RunNotFound(f"Redis knows no run {run}", do="Run hsqueue enqueue RUN; it rebuilds the ledger.")
        if run not in self._runs or self._roots.get(run) != Path(known.dir):
            root = Path(known.dir)
            require_volume(root, self.settings.volumes)
            self._roots[run] = root
            info = load_run(root)
            if info.run != run:
                raise RunNotFound(f"{root} holds another run", expected=run, found=info.run)
            self._check_fit(info)
            self._runs[run] = OpenRun(info, RunLayout(root), ledger)
        return self._runs[run]

    def _rebuild_if_lost(self, run: OpenRun) -> None:
        """A run may be lost before any reaper has seen it; whoever works at it has."""
        try:
            if run.ledger.is_forgotten():
                log.warning("run %s: Redis lost its ledger; rebuilding it from the volume", run.info.run)
                reconcile(self.client, self.redis_url, run.layout, run.info)
        except HsqueueError as error:
            log.warning("run %s: %s", run.info.run, error)

    def _check_fit(self, info: RunInfo) -> None:
        different = info.fingerprint.target.differences(self.card.target)
        if different:
            listed = "; ".join(f"{name}: the run needs {a}, the engine is {b}" for name, (a, b) in different.items())
            raise FingerprintMismatch(
                f"run {info.run} needs another engine ({listed})",
                do="Start the engine with what the run needs, or plan a run for this engine.",
            )

    # --- turns and pauses --------------------------------------------------------------------------------

    def _await_turn(self, share: Share) -> bool:
        """Waits while an elder shard has something to send; False where the worker is paused meanwhile."""
        while True:
            if self.pin.pause_path.exists() or self.pin.stop_path.exists():
                return False
            if share.is_turn():
                return True
            share.wait(TURN_POLL)

    def _pause_for(self, error: HsqueueError, message: ShardMessage) -> None:
        if error.kind is Kind.ENGINE_DOWN or isinstance(error, EngineUnfit):
            kind = "engine"
        elif isinstance(error, VolumeUnusable | RunNotFound):
            kind = "volume"
        else:
            return
        if isinstance(error, LeaseLost) or read_pause(self.pin.pause_path) is not None:
            return
        write_pause(self.pin.pause_path, Pause(kind, str(self._roots.get(message.run, "")), str(error)))

    def _hand_back(self, message: ShardMessage, why: str) -> str:
        """The message goes; its shard does not count as queued any more, so the reaper sends it again at once."""
        try:
            Ledger(self.client, self.redis_url, message.run).unqueue([message.shard])
        except HsqueueError as error:
            log.warning("run %s shard %d: %s", message.run, message.shard, error)
        return f"handed back: {why}"

    def sweep(self) -> int:
        """Removes orphaned dumps of ours. Returns how many."""
        if self.pin.layout != "rid":
            return 0
        fences = {slot.fence for slot in self.budget.slots()}
        age = self.settings.request_timeout + self.settings.dump_timeout
        return sweep(self.pin.dump_dir, fences, age)
