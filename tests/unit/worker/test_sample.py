"""One sample's way with an engine that does as it is told: nothing of the request is left, whatever happens."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from hsqueue.contracts import errors
from hsqueue.contracts.errors import (
    DumpAmbiguous,
    DumpMismatch,
    DumpMissing,
    EngineDown,
    EngineRefused,
    HsqueueError,
    LeaseLost,
    ResponseMismatch,
    SampleRefused,
    SampleTooLong,
    TokenOutOfVocabulary,
    VolumeUnusable,
)
from hsqueue.contracts.rid import RequestId
from hsqueue.contracts.sample import Sample
from hsqueue.store.samplefile import read_sample_header
from hsworker.budget import Budget, Share
from hsworker.dumps import RidDumps
from hsworker.sample import Way, dump_bytes, process
from hsworker.turns import Limits
from tests.support.fakeengine import CARD, CONTEXT_LENGTH, FakeEngine
from tests.support.volume import TARGET, Volume, make_volume, write_dump


class Dumps(RidDumps):
    """Notes what it is told, for the layout whose bookkeeping hangs on it."""

    def __init__(self, directory: Path, refusal: HsqueueError | None = None) -> None:
        super().__init__(directory)
        self.refusal = refusal
        self.open: set[str] = set()
        self.orphaned: list[bool] = []

    def announce(self, rid: RequestId, sample: Sample) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.open.add(str(rid))

    def forget(self, rid: RequestId, *, orphaned: bool) -> None:
        super().forget(rid, orphaned=orphaned)
        if str(rid) in self.open:
            self.open.discard(str(rid))
            self.orphaned.append(orphaned)


@dataclass
class Bench:
    """A sample of five tokens, its engine, and everything that could be left over."""

    volume: Volume
    engine: FakeEngine
    dumps: Dumps
    budget: Budget
    share: Share
    way: Way
    answered: list[int]

    @property
    def sample(self) -> Sample:
        return self.volume.samples[0]

    def run(self, sample: Sample | None = None, alone: bool = False) -> object:
        """As the shard does: a share is taken, then the sample goes its way."""
        sample = sample or self.sample
        assert self.share.take(sample.tokens, dump_bytes(TARGET, sample.tokens))
        return process(self.way, sample, 0, alone)

    def assert_nothing_left(self) -> None:
        (slot,) = self.budget.slots()
        assert (slot.requests, slot.bytes) == (0, 0), "the share is given back"
        assert len(self.answered) == 1, "the shard's loop is woken once"
        assert list(self.dumps.directory.glob("req_*")) == []
        assert self.dumps.open == set(), "the dump source waits for nothing"
        assert [p for p in self.volume.layout.samples.rglob("*") if p.name.endswith(".tmp")] == []


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    volume = make_volume(tmp_path / "run", (5, 5), 2)
    directory = tmp_path / "engine"
    directory.mkdir()
    engine = FakeEngine(lambda rid: write_dump(directory, rid, volume.samples[0]))
    dumps, budget, answered = Dumps(directory), Budget(tmp_path / "budget", Limits(4, 1 << 20, 1 << 20)), list[int]()
    share = budget.open()
    way = Way(
        run=volume.info.run, shard=0, fence=1 << 32, target=TARGET, card=CARD, layout=volume.layout,
        engine=engine, dumps=dumps, share=share, dump_timeout=0.05, is_same_engine=lambda: True,  # type: ignore[arg-type]
        may_publish=lambda: None, answered=lambda: answered.append(1), publishing=threading.Semaphore(1),
    )  # fmt: skip
    return Bench(volume, engine, dumps, budget, share, way, answered)


def test_no_more_samples_are_copied_at_a_time_than_there_are_places(bench: Bench) -> None:
    bench.way.publishing.acquire()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(bench.run)
        with pytest.raises(TimeoutError):
            waiting.result(0.2)
        assert not bench.volume.path(0).exists()
        bench.way.publishing.release()
        assert waiting.result(10).index == 0


def test_what_matches_is_published_and_the_dump_removed(bench: Bench) -> None:
    published = bench.run()
    assert read_sample_header(bench.volume.path(0)).published == published
    assert bench.engine.asked == [RequestId("r1", 0, 1 << 32, 0)]
    bench.assert_nothing_left()
    assert bench.dumps.orphaned == [False]


FAILURES = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, HsqueueError)]


@pytest.mark.parametrize("error", FAILURES, ids=lambda e: e.__name__)
@pytest.mark.parametrize("with_dump", [True, False])
def test_an_error_of_the_engine_leaves_nothing_behind(bench: Bench, error: type[HsqueueError], with_dump: bool) -> None:
    bench.engine.error = error("what happened")
    if not with_dump:
        bench.engine.dump = lambda rid: None
    with pytest.raises(HsqueueError):
        bench.run()
    bench.assert_nothing_left()
    assert not bench.volume.path(0).exists()


@pytest.mark.parametrize("error", [RuntimeError("a bug"), RecursionError(), ValueError(), MemoryError()])
def test_an_unexpected_error_leaves_nothing_behind(bench: Bench, error: Exception) -> None:
    bench.engine.error = error
    with pytest.raises(type(error)):
        bench.run()
    bench.assert_nothing_left()


def test_an_ambiguous_announcement_gives_its_share_back(bench: Bench) -> None:
    """Otherwise the sample, which is to be tried again alone, waits for itself for ever."""
    bench.dumps.refusal = DumpAmbiguous("the length is spoilt")
    with pytest.raises(DumpAmbiguous):
        bench.run()
    assert bench.engine.asked == []
    bench.assert_nothing_left()
    assert bench.share.take(1, 1, alone=True)


@pytest.mark.parametrize(
    ("error", "orphaned"), [(EngineRefused("5xx"), False), (SampleRefused("400"), False), (EngineDown("gone"), True)]
)
def test_only_an_accepted_request_may_still_leave_a_dump(bench: Bench, error: HsqueueError, orphaned: bool) -> None:
    bench.engine.error, bench.engine.stands = error, False
    with pytest.raises(type(error)):
        bench.run()
    assert bench.dumps.orphaned == [orphaned]


@pytest.mark.parametrize(
    ("stands", "same", "expected"), [(True, True, EngineRefused), (True, False, EngineDown), (False, True, EngineDown)]
)
def test_a_broken_connection_is_the_engines_end_unless_the_same_one_still_stands(
    bench: Bench, stands: bool, same: bool, expected: type[HsqueueError]
) -> None:
    bench.engine.error, bench.engine.stands = EngineDown("dropped"), stands
    bench.way = replace(bench.way, is_same_engine=lambda: same)
    with pytest.raises(expected):
        bench.run()


def test_a_suspect_is_not_sent_to_an_engine_that_is_down(bench: Bench) -> None:
    bench.engine.stands = False
    with pytest.raises(EngineDown) as caught:
        bench.run(alone=True)
    assert (caught.value.asked, bench.engine.asked, bench.dumps.orphaned) == (False, [], [False])


def test_a_response_about_another_request_is_not_followed_by_a_dump(bench: Bench) -> None:
    bench.engine.respond = lambda response: replace(response, rid="hsq.r1.9.4294967296.0")
    with pytest.raises(ResponseMismatch):
        bench.run()
    bench.assert_nothing_left()


def test_a_dump_of_another_prompt_is_never_published(bench: Bench) -> None:
    other = replace(bench.volume.samples[1], index=0)
    bench.engine.dump = lambda rid: write_dump(bench.dumps.directory, rid, other)
    with pytest.raises(DumpMismatch, match="token ids differ"):
        bench.run()
    bench.assert_nothing_left()
    assert not bench.volume.path(0).exists()


def test_a_missing_dump_may_still_appear(bench: Bench) -> None:
    bench.engine.dump = lambda rid: None
    with pytest.raises(DumpMissing):
        bench.run()
    bench.assert_nothing_left()
    assert bench.dumps.orphaned == [True]


def test_a_lost_lease_publishes_nothing(bench: Bench) -> None:
    def refuse() -> None:
        raise LeaseLost("lost")

    bench.way = replace(bench.way, may_publish=refuse)
    with pytest.raises(LeaseLost):
        bench.run()
    bench.assert_nothing_left()
    assert not bench.volume.path(0).exists()


def test_a_volume_that_cannot_be_written_is_named_for_the_sample(bench: Bench) -> None:
    bench.volume.layout.samples.write_text("a plain file")
    with pytest.raises(VolumeUnusable) as caught:
        bench.run()
    bench.assert_nothing_left()
    assert str(caught.value.sample) == "hsq.r1.0.4294967296.0"


def test_a_sample_that_could_kill_the_engine_is_never_sent(bench: Bench) -> None:
    poison, long = bench.sample.input_ids[:], bench.sample.input_ids * CONTEXT_LENGTH
    poison[2] = TARGET.vocab_size
    for ids, error in ((poison, TokenOutOfVocabulary), (long, SampleTooLong)):
        bench.answered.clear()
        with pytest.raises(error):
            bench.run(replace(bench.sample, input_ids=ids))
        bench.assert_nothing_left()
    assert bench.engine.asked == []
