"""One leased shard from its first request to its manifest."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from hsqueue.contracts.errors import (
    EngineDown,
    HsqueueError,
    Kind,
    LeaseLost,
    RedisUnreachable,
    RetryError,
    RunDamaged,
    WorkerStopping,
)
from hsqueue.contracts.fingerprint import RunInfo
from hsqueue.contracts.meters import error_name
from hsqueue.contracts.rid import RequestId
from hsqueue.contracts.sample import Ending, GivenUp, Published, Sample
from hsqueue.ledger.ledger import Ledger
from hsqueue.planning.shards import read_shard
from hsqueue.settings import Settings
from hsqueue.store.files import require_run
from hsqueue.store.layout import RunLayout
from hsqueue.store.manifest import make_manifest, write_manifest
from hsworker.account import Account
from hsworker.adoption import adopt
from hsworker.budget import Share
from hsworker.endings import Endings
from hsworker.lease import LeaseKeeper
from hsworker.outcome import Outcome
from hsworker.progress import Send, ShardProgress
from hsworker.sample import Way, dump_bytes, process
from hsworker.telling import reasons

log = logging.getLogger(__name__)

IDLE_POLL = 0.25
"""Seconds until a look without having been woken."""
STOP_POLL = 0.1


class Unexpected(RetryError):
    """A fault in hsqueue itself, met while a sample was processed; the log has its traceback."""


@dataclass(frozen=True, slots=True)
class _Ended:
    index: int
    published: Published | None
    error: HsqueueError | None


class ShardRun:
    """Works one shard under `keeper`'s lease. report: called with (samples ended, all, tokens done) now and then.
    stopping: whether the worker was asked to end; then nothing more is sent, and the lease is given back.
    """

    def __init__(
        self,
        info: RunInfo,
        layout: RunLayout,
        ledger: Ledger,
        keeper: LeaseKeeper,
        share: Share,
        settings: Settings,
        way: Callable[[Callable[[], None]], Way],
        report: Callable[[int, int, int], None],
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self.info, self.layout, self.ledger, self.keeper = info, layout, ledger, keeper
        self.share, self.settings, self.report, self.stopping = share, settings, report, stopping
        self.shard = keeper.lease.shard
        self.indices = info.shard_range(self.shard)
        self._ended: deque[_Ended] = deque()
        self.way = way(share.wake)
        self._endings = Endings(layout, ledger, keeper.lease, self.way.times, len(self.indices))
        self._account = Account(ledger, keeper.lease, self.way.times)
        self._hopeless: list[GivenUp] = []
        self._next_look = 0.0

    def run(self) -> Outcome:
        """Does what is left of the shard. Raises nothing for a sample's sake; see ``Outcome.stopped_by``."""
        try:
            require_run(self.layout.run_json)
            self._account.open()
            self._adopt()
            samples = self._planned()
            if self.keeper.lease.attempt > self.settings.max_leases:
                samples = self._leased_too_often()
            left = {i: s.tokens for i, s in samples.items() if self._endings.is_open(i)}
            progress = ShardProgress(left, self.ledger.suspects(left), self.settings.max_attempts)
            self._work(progress, samples)
            stopped = self._close(progress)
        except HsqueueError as error:
            stopped = error
        self._account.tell()
        return self._outcome(stopped)

    def _planned(self) -> dict[int, Sample]:
        """The shard's samples. Of a plan that cannot be read, none: what is not done then counts as failed."""
        try:
            return {s.index: s for s in read_shard(self.layout.plan_shard(self.shard), self.indices)}
        except RunDamaged as error:
            return self._give_up_the_rest(error.name, str(error))

    def _leased_too_often(self) -> dict[int, Sample]:
        """A shard that ends its process, or its lease, again and again would be sent again for ever."""
        leases = self.settings.max_leases
        text = f"the shard was leased {leases} times without any progress; see the workers' logs, then hsqueue retry"
        return self._give_up_the_rest("LeasesExhausted", text)

    def _give_up_the_rest(self, error: str, detail: str) -> dict[int, Sample]:
        for index in filter(self._endings.is_open, self.indices):
            self._hopeless.append(GivenUp(index, Ending.FAILED, 0, error, detail[:500]))
        return {}

    def _adopt(self) -> None:
        """Takes over what earlier leases published or gave up."""
        self.share.declare(wants=True, fence=self.keeper.lease.fence)
        adopted = adopt(self.layout, self.info, self.ledger, self.shard)
        self._endings.adopt(adopted)
        self._commit(list(adopted.given_up.values()) if adopted.ended else [])

    def _work(self, progress: ShardProgress, samples: dict[int, Sample]) -> None:
        threads = self.settings.max_in_flight + self.settings.publishers
        with ThreadPoolExecutor(threads, thread_name_prefix="sample") as pool:
            while not progress.over:
                if not self.keeper.valid:
                    progress.stop(LeaseLost(f"the lease of shard {self.shard} is lost"))
                if self._is_stopping(time.monotonic()):
                    progress.stop(WorkerStopping("the worker was asked to end"))
                send = progress.next(time.monotonic())
                self.share.declare(wants=send is not None, fence=self.keeper.lease.fence)
                if send is not None and self._take(send, samples):
                    progress.started(send)
                    pool.submit(self._process, samples[send.index], send)
                    continue
                # What lets a refused request be sent, in this process or in another, wakes it.
                self._await(progress, self._pause(progress) if send is None else IDLE_POLL)
                self._commit_when_due(progress)
                self._account.tell_when_due()
            self.share.declare(wants=False, fence=self.keeper.lease.fence)

    def _is_stopping(self, now: float) -> bool:
        """Looked at now and then: it costs a look at the file system."""
        if now < self._next_look:
            return False
        self._next_look = now + STOP_POLL
        return self.stopping()

    def _take(self, send: Send, samples: dict[int, Sample]) -> bool:
        tokens = samples[send.index].tokens
        return self.share.take(tokens, dump_bytes(self.way.target, tokens), alone=send.alone)

    def _pause(self, progress: ShardProgress) -> float:
        pause = progress.pause(time.monotonic())
        return IDLE_POLL if pause is None else min(IDLE_POLL, pause + 0.001)

    def _process(self, sample: Sample, send: Send) -> None:
        published, error = None, None
        try:
            published = process(self.way, sample, send.attempt, send.alone)
        except HsqueueError as known:
            error = known
        except Exception as unknown:
            more = {"run": self.info.run, "shard": self.shard, "index": sample.index}
            log.exception("run %s shard %d sample %d: unexpected error", *more.values(), extra=more)
            error = Unexpected(f"{type(unknown).__name__}: {unknown}", sample=sample.index)
        self._ended.append(_Ended(sample.index, published, error))
        self.share.wake()

    def _await(self, progress: ShardProgress, timeout: float) -> None:
        """Waits to be woken, then takes all that have ended."""
        self.share.wait(timeout)
        while self._ended:
            self._record(progress, self._ended.popleft())

    def _record(self, progress: ShardProgress, event: _Ended) -> None:
        if event.published is not None:
            progress.succeeded(event.published)
            self._endings.uncommitted.append(event.published)
            self.way.times.count(samples=1, tokens=event.published.tokens, bytes=event.published.bytes)
            return
        assert event.error is not None
        self.way.times.count(**{error_name(event.error.name): 1})
        progress.failed(event.index, event.error, time.monotonic())
        if event.error.kind is Kind.RETRY and event.index not in progress.given_up:
            self._account.retries[event.error.name] += 1
        rid = event.error.sample if isinstance(event.error.sample, RequestId) else None
        more = {"index": event.index, "rid": rid}
        log.debug("run %s shard %d sample %d: %s", self.info.run, self.shard, event.index, event.error, extra=more)

    def _commit_when_due(self, progress: ShardProgress) -> None:
        endings, settings = self._endings, self.settings
        given_up, waiting = endings.new(progress.given_up), len(endings.uncommitted)
        due = time.monotonic() - endings.committed_at >= settings.commit_every
        if (waiting or given_up) and (due or waiting >= settings.commit_samples):
            try:
                self._commit(given_up)
                endings.take_up(given_up)
            except RedisUnreachable as error:
                endings.committed_at = time.monotonic()
                log.warning("run %s shard %d: %s", self.info.run, self.shard, error)
            except HsqueueError as error:
                progress.stop(error)

    def _commit(self, given_up: list[GivenUp]) -> None:
        self._endings.commit(given_up)
        self.report(self._endings.count, len(self.indices), self._endings.tokens)

    def _close(self, progress: ShardProgress) -> HsqueueError | None:
        """Commits, and writes the manifest where every sample has ended. Returns why it could not."""
        endings, lease, is_engine_down = self._endings, self.keeper.lease, isinstance(progress.stopped_by, EngineDown)
        given_up = [*endings.new(progress.given_up), *self._hopeless]
        if is_engine_down:
            self.ledger.suspect(progress.downed)
        self._commit_while_leased(given_up)
        endings.take_up(given_up)
        work = self._account.closed(progress.done.values(), is_engine_down=is_engine_down)
        if not endings.are_all:
            if self.keeper.valid:
                self._account.keep(work)
            self.ledger.release(lease)
            return progress.stopped_by
        self.keeper.check()
        done, rest = endings.done.values(), endings.given_up.values()
        write_manifest(
            self.layout, make_manifest(self.info.run, self.shard, lease.fence, lease.owner, done, rest, work)
        )
        if not self.ledger.finish(lease):
            return LeaseLost(f"the lease of shard {self.shard} was lost at its end")
        return progress.stopped_by

    def _commit_while_leased(self, given_up: list[GivenUp]) -> None:
        """Redis may be restarting; as long as the lease lives, its last commit is worth waiting for."""
        while True:
            try:
                return self._commit(given_up)
            except RedisUnreachable:
                if not self.keeper.valid:
                    raise
                time.sleep(IDLE_POLL)

    def _outcome(self, stopped: HsqueueError | None) -> Outcome:
        done, given_up = len(self._endings.done), self._endings.given_up.values()
        skipped = sum(given.ending == Ending.SKIPPED for given in given_up)
        return Outcome(
            self.shard, len(self.indices), self._endings.are_all, done, skipped, len(given_up) - skipped, stopped,
            reasons(given_up),
        )  # fmt: skip
