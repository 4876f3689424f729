"""One leased shard from its first request to its manifest."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
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
from hsqueue.contracts.meters import ENGINE, LEDGER, STAGES, VOLUME, error_name
from hsqueue.contracts.rid import RequestId
from hsqueue.contracts.sample import Ending, GivenUp, Published, Sample
from hsqueue.contracts.work import Work
from hsqueue.ledger.ledger import Ledger
from hsqueue.planning.shards import read_shard
from hsqueue.settings import Settings
from hsqueue.store.files import (
    fsync_directory,
    make_directory,
    require_inside,
    require_run,
    temporaries_of,
    volume_error,
)
from hsqueue.store.layout import TEMPORARY_SUFFIX, RunLayout
from hsqueue.store.manifest import make_manifest, write_manifest
from hsqueue.store.survey import look_afresh, survey_shard
from hsworker.budget import Share
from hsworker.lease import LeaseKeeper
from hsworker.progress import Send, ShardProgress
from hsworker.sample import Way, dump_bytes, process
from hsworker.telling import reasons
from hsworker.times import complaint

log = logging.getLogger(__name__)

IDLE_POLL = 0.25
"""Seconds until a look without having been woken."""

STOP_POLL = 0.1

METER_SECONDS = 5.0
"""Seconds between two additions to the counters in Redis."""


class Unexpected(RetryError):
    """A fault in hsqueue itself, met while a sample was processed; the log has its traceback."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a lease ended. ended: the shard has its manifest. stopped_by: why it has none, or what came after it.
    reasons: why samples failed, for people.
    """

    shard: int
    samples: int
    ended: bool
    done: int
    skipped: int
    failed: int
    stopped_by: HsqueueError | None
    reasons: str = ""

    def __str__(self) -> str:
        parts = [f"{self.done}/{self.samples} done"]
        parts += [f"{n} {name}" for n, name in ((self.skipped, "skipped"), (self.failed, "failed")) if n]
        word = "afterwards" if self.ended else "stopped"
        return ", ".join(parts) + (f"; {word}: {self.stopped_by}" if self.stopped_by else "")


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
        self._committed: dict[int, Published] = {}
        self._uncommitted: list[Published] = []
        self._given_up: dict[int, GivenUp] = {}
        self._hopeless: list[GivenUp] = []
        self._last_commit = self._last_meter = time.monotonic()
        self._complained = False
        self._next_look = 0.0
        self._retries: Counter[str] = Counter()
        self._so_far = Work()

    def run(self) -> Outcome:
        """Does what is left of the shard. Raises nothing for a sample's sake; see ``Outcome.stopped_by``."""
        try:
            require_run(self.layout.run_json)
            self._open_account()
            self._adopt()
            samples = self._planned()
            if self.keeper.lease.attempt > self.settings.max_leases:
                samples = self._leased_too_often()
            left = {i: s.tokens for i, s in samples.items() if i not in self._committed and i not in self._given_up}
            progress = ShardProgress(left, self.ledger.suspects(left), self.settings.max_attempts)
            self._work(progress, samples)
            stopped = self._close(progress)
        except HsqueueError as error:
            stopped = error
        self._meter()
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
        for index in self.indices:
            if index not in self._committed and index not in self._given_up:
                self._hopeless.append(GivenUp(index, Ending.FAILED, 0, error, detail[:500]))
        return {}

    # --- before: what is there already -------------------------------------------------------------------

    def _adopt(self) -> None:
        """Takes over what an earlier lease published or gave up, and clears what it left half done."""
        self.share.declare(wants=True, fence=self.keeper.lease.fence)
        directory = self.layout.shard_directory(self.shard)
        require_inside(self.layout.root, directory, self.layout.manifest(self.shard))
        make_directory(directory)
        look_afresh(self.layout, [self.shard])
        state = survey_shard(self.layout, self.info, self.shard)
        recorded = self.ledger.done_in(self.indices)
        try:
            for index in state.damaged:
                self.layout.sample(self.shard, index).unlink(missing_ok=True)
            manifest = self.layout.manifest(self.shard)
            for path in (*directory.glob(f".*{TEMPORARY_SUFFIX}"), *temporaries_of(manifest)):
                path.unlink(missing_ok=True)
            lost = recorded - {d.index for d in state.done}
            if lost or state.stale:
                manifest.unlink(missing_ok=True)
        except OSError as error:
            raise volume_error(error, directory / "x") from error
        if lost:
            planned = {s.index: s.tokens for s in read_shard(self.layout.plan_shard(self.shard), self.indices)}
            self.ledger.forget(self.shard, {index: planned[index] for index in lost})
        self._given_up = self.ledger.given_up(self.indices)
        if state.ended:
            self._given_up |= {g.index: g for g in state.given_up}
        self._uncommitted = [d for d in state.done if d.index not in recorded]
        self._committed = {d.index: d for d in state.done if d.index in recorded}
        self._given_up = {i: g for i, g in self._given_up.items() if i not in {d.index for d in state.done}}
        self._commit(list(self._given_up.values()) if state.ended else [])

    # --- during ------------------------------------------------------------------------------------------

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
                if time.monotonic() - self._last_meter >= METER_SECONDS:
                    self._meter()
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
            self._uncommitted.append(event.published)
            self.way.times.count(samples=1, tokens=event.published.tokens, bytes=event.published.bytes)
            return
        assert event.error is not None
        self.way.times.count(**{error_name(event.error.name): 1})
        progress.failed(event.index, event.error, time.monotonic())
        if event.error.kind is Kind.RETRY and event.index not in progress.given_up:
            self._retries[event.error.name] += 1
        rid = event.error.sample if isinstance(event.error.sample, RequestId) else None
        more = {"index": event.index, "rid": rid}
        log.debug("run %s shard %d sample %d: %s", self.info.run, self.shard, event.index, event.error, extra=more)

    def _complain_of_the_volume(self) -> None:
        """Once a lease: a slow volume stops nothing, so nobody would ask why."""
        text = "" if self._complained else complaint(self.way.times[ENGINE], self.way.times[VOLUME])
        if text:
            self._complained = True
            log.warning("run %s shard %d: %s", self.info.run, self.shard, text)

    def _meter(self) -> None:
        """Passes on what the lease's counters grew by. They are figures for people: Redis may lose them."""
        self._last_meter = time.monotonic()
        self._complain_of_the_volume()
        increments = self.way.times.untold()
        if not increments:
            return
        try:
            self.ledger.add(self.keeper.lease.worker, increments)
            self.way.times.tell(increments)
        except HsqueueError as error:
            log.debug("shard %d: counters are told later: %s", self.shard, error)

    def _new(self, progress: ShardProgress) -> list[GivenUp]:
        """Samples given up that the ledger has not been told of."""
        return [given for index, given in progress.given_up.items() if index not in self._given_up]

    def _take_up(self, given_up: list[GivenUp]) -> None:
        self._given_up |= {given.index: given for given in given_up}
        for given in given_up:
            self.way.times.count(**{str(given.ending): 1})

    def _commit_when_due(self, progress: ShardProgress) -> None:
        due = time.monotonic() - self._last_commit >= self.settings.commit_every
        given_up = self._new(progress)
        if (self._uncommitted or given_up) and (due or len(self._uncommitted) >= self.settings.commit_samples):
            try:
                self._commit(given_up)
                self._take_up(given_up)
            except RedisUnreachable as error:
                self._last_commit = time.monotonic()
                log.warning("run %s shard %d: %s", self.info.run, self.shard, error)
            except HsqueueError as error:
                progress.stop(error)

    def _commit(self, given_up: list[GivenUp]) -> None:
        """Records what stands on the volume, after it would survive a power cut."""
        if self._uncommitted or given_up:
            directory = self.layout.shard_directory(self.shard)
            try:
                fsync_directory(directory)
            except OSError as error:
                raise volume_error(error, directory / "x") from error
            with self.way.times.spend(LEDGER):
                self.ledger.commit(self.keeper.lease, self._uncommitted, given_up)
            self._committed |= {d.index: d for d in self._uncommitted}
            self._uncommitted = []
        self._last_commit = time.monotonic()
        tokens = sum(sample.tokens for sample in self._committed.values())
        self.report(len(self._committed) + len(self._given_up), len(self.indices), tokens)

    # --- after -------------------------------------------------------------------------------------------

    def _close(self, progress: ShardProgress) -> HsqueueError | None:
        """Commits, and writes the manifest where every sample has ended. Returns why it could not."""
        given_up = [*self._new(progress), *self._hopeless]
        if isinstance(progress.stopped_by, EngineDown):
            self.ledger.suspect(progress.downed)
        self._commit_while_leased(given_up)
        self._take_up(given_up)
        work = self._account(progress)
        if len(self._committed) + len(self._given_up) < len(self.indices):
            if self.keeper.valid:
                self.ledger.keep_work(self.shard, work)
            self.ledger.release(self.keeper.lease)
            return progress.stopped_by
        lease = self.keeper.lease
        self.keeper.check()
        write_manifest(
            self.layout,
            make_manifest(
                self.info.run,
                self.shard,
                lease.fence,
                lease.owner,
                self._committed.values(),
                self._given_up.values(),
                work,
            ),
        )
        if not self.ledger.finish(lease):
            return LeaseLost(f"the lease of shard {self.shard} was lost at its end")
        return progress.stopped_by

    def _open_account(self) -> None:
        """Kept from the beginning: a worker that dies tells nobody that it had the shard."""
        worker = self.keeper.lease.worker
        self._so_far = self.ledger.work(self.shard).opened(worker, time.time())
        self.ledger.keep_work(self.shard, self._so_far)

    def _account(self, progress: ShardProgress) -> Work:
        done, down = progress.done.values(), isinstance(progress.stopped_by, EngineDown)
        tokens = sum(d.tokens for d in done)
        seconds = {stage: self.way.times[stage].seconds for stage in STAGES}
        return self._so_far.closed(time.time(), len(done), tokens, seconds, self._retries, down)

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
        skipped = sum(g.ending == "skipped" for g in self._given_up.values())
        ended = len(self._committed) + len(self._given_up) == len(self.indices)
        return Outcome(
            self.shard, len(self.indices), ended, len(self._committed), skipped,
            len(self._given_up) - skipped, stopped, reasons(self._given_up.values()),
        )  # fmt: skip
