"""Whatever happens in whatever order, no sample is lost, asked for twice at once, or asked for without end."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hsqueue.contracts.errors import (
    DumpAmbiguous,
    DumpMissing,
    EngineDown,
    HsqueueError,
    LeaseLost,
    RequestTimeout,
    SampleTooLong,
    StatesNotFinite,
)
from hsqueue.contracts.sample import Ending, Published
from hsworker.progress import LONGEST_PAUSE, TOTAL_ATTEMPTS, Send, ShardProgress

RETRIES = (DumpMissing, RequestTimeout, DumpAmbiguous, StatesNotFinite)


class Shard(RuleBasedStateMachine):
    """Keeps book of where each sample is, apart from the progress under test."""

    @initialize(
        lengths=st.lists(st.integers(1, 6), max_size=6), suspects=st.sets(st.integers(0, 5)), limit=st.integers(1, 3)
    )
    def begin(self, lengths: list[int], suspects: set[int], limit: int) -> None:
        self.lengths = dict(enumerate(lengths))
        self.progress = ShardProgress(self.lengths, suspects, limit)
        self.limit = limit
        self.now = 0.0
        self.waiting = set(self.lengths)
        self.alone = suspects & self.waiting
        self.flying: dict[int, Send] = {}
        self.put_back: set[int] = set()
        self.asked = dict.fromkeys(self.lengths, 0)
        self.failures: dict[tuple[int, str], int] = {}
        self.stopped = False

    @rule()
    def send(self) -> None:
        found = self.progress.next(self.now)
        if found is None:
            return
        assert not self.stopped
        assert found.index in self.waiting
        assert found.attempt == self.asked[found.index]
        never_sent = {i for i in self.waiting - self.alone if self.asked[i] == 0}
        assert found.alone == (found.index in self.alone)
        assert not found.alone or self.waiting <= self.alone
        if never_sent:
            assert self.lengths[found.index] == max(self.lengths[i] for i in never_sent)
        if any(one.alone for one in (found, *self.flying.values())) and self.flying:
            return  # the budget's part: it lets nobody send beside a sample that is to be alone
        self.progress.started(found)
        self.waiting.discard(found.index)
        self.flying[found.index] = found
        self.asked[found.index] += 1

    @rule(seconds=st.sampled_from([0.01, 0.3, LONGEST_PAUSE]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    def land(self, data: st.DataObject) -> Send:
        return self.flying.pop(data.draw(st.sampled_from(sorted(self.flying))))

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def succeed(self, data: st.DataObject) -> None:
        self.progress.succeeded(Published(self.land(data).index, 1, 1, ""))

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), kind=st.sampled_from(RETRIES))
    def fail(self, data: st.DataObject, kind: type[HsqueueError]) -> None:
        landed = self.land(data)
        key = landed.index, kind.__name__
        self.failures[key] = self.failures.get(key, 0) + 1
        self.progress.failed(landed.index, kind("x"), self.now)
        over = self.failures[key] >= self.limit or self.asked[landed.index] >= self.limit * TOTAL_ATTEMPTS
        assert (landed.index in self.progress.given_up) == over
        if not over:
            self.waiting.add(landed.index)
            self.alone |= {landed.index} if kind is DumpAmbiguous else set()

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def skip(self, data: st.DataObject) -> None:
        landed = self.land(data)
        self.progress.failed(landed.index, SampleTooLong("x"), self.now)
        assert self.progress.given_up[landed.index].ending is Ending.SKIPPED

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def engine_down(self, data: st.DataObject) -> None:
        landed = self.land(data)
        self.progress.failed(landed.index, EngineDown("x"), self.now)
        self.stopped = True
        if landed.alone:
            assert self.progress.given_up[landed.index].error == "EngineKilled"
        else:
            assert landed.index in self.progress.downed
            self.put_back.add(landed.index)

    @rule()
    def stop(self) -> None:
        self.progress.stop(LeaseLost("x"))
        self.stopped = True

    @precondition(lambda self: hasattr(self, "progress"))
    @invariant()
    def every_sample_is_in_one_place(self) -> None:
        progress = self.progress
        ended = progress.done.keys() | progress.given_up.keys()
        assert len(ended) == len(progress.done) + len(progress.given_up)
        places = [*self.waiting, *self.flying, *self.put_back, *ended]
        assert sorted(places) == sorted(self.lengths)
        assert progress.in_flight == len(self.flying)

    @precondition(lambda self: hasattr(self, "progress"))
    @invariant()
    def it_is_over_when_nothing_can_come(self) -> None:
        everything = len(self.progress.done) + len(self.progress.given_up) == len(self.lengths)
        assert self.progress.ended == everything
        assert self.progress.over == (everything or (self.stopped and not self.flying))
        assert self.progress.draining == self.stopped

    @precondition(lambda self: hasattr(self, "progress"))
    @invariant()
    def there_is_always_a_way_on(self) -> None:
        """Something can be sent after a bounded pause, or an outcome is awaited, or it is over."""
        if self.progress.over or self.flying:
            return
        pause = self.progress.pause(self.now)
        assert pause is not None
        assert 0 <= pause <= LONGEST_PAUSE
        assert self.progress.next(self.now + pause + 1e-6) is not None

    @precondition(lambda self: hasattr(self, "progress"))
    @invariant()
    def no_sample_is_asked_for_without_end(self) -> None:
        assert all(count <= self.limit * TOTAL_ATTEMPTS for count in self.asked.values())

    def teardown(self) -> None:
        """Left alone with an engine that always fails, the shard comes to an end."""
        if not hasattr(self, "progress"):
            return
        for _ in range(10_000):
            if self.progress.over:
                return
            self.now += LONGEST_PAUSE
            found = self.progress.next(self.now)
            if found is not None:
                self.progress.started(found)
                self.flying[found.index] = found
            for index in list(self.flying):
                del self.flying[index]
                self.progress.failed(index, DumpMissing("x"), self.now)
        raise AssertionError("the shard never ends")


Shard.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestShard = Shard.TestCase
