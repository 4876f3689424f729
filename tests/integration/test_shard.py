"""One leased shard with a real ledger and a real volume; the engine answers as the test tells it."""

from __future__ import annotations

import errno
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from hsqueue.contracts.errors import EngineDown, EngineRefused, LeaseLost, VolumeUnusable
from hsqueue.contracts.rid import RequestId
from hsqueue.contracts.sample import Ending, GivenUp, Published
from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.rebuild import reconcile
from hsqueue.ledger.records import Counts
from hsqueue.monitoring.limits import SLOW_VOLUME
from hsqueue.settings import Settings
from hsqueue.store.files import temporary_name
from hsqueue.store.manifest import read_manifest
from hsqueue.store.retry import retry
from hsqueue.store.verify import verify
from hsworker.budget import Budget
from hsworker.counter_dumps import CounterDumps
from hsworker.dumps import DumpSource, RidDumps
from hsworker.lease import LeaseKeeper
from hsworker.outcome import Outcome
from hsworker.sample import Way
from hsworker.shard import ShardRun
from hsworker.times import ENOUGH
from hsworker.turns import Limits
from tests.support.counter import write_counter_dump
from tests.support.fakeengine import CARD, FakeEngine
from tests.support.ledger import expire, granted
from tests.support.redis import RedisServer
from tests.support.volume import TARGET, Volume, make_volume, write_dump

LENGTHS = (5, 9, 12, 3)
SETTINGS = Settings(max_attempts=2, commit_every=0.01, publishers=2, max_in_flight=4)
FAILED = GivenUp(1, Ending.FAILED, 5, "DumpMissing", "as before")


@dataclass
class Floor:
    """A run of one shard with four samples, and what works on it."""

    volume: Volume
    ledger: Ledger
    dump_dir: Path
    engine: FakeEngine = field(default_factory=FakeEngine)
    dumps: DumpSource | None = None
    dump_timeout: float = 0.05

    def dump(self, rid: RequestId) -> None:
        write_dump(self.dump_dir, rid, self.volume.samples[rid.index])

    def work(self, owner: str = "a") -> Outcome:
        lease = granted(self.ledger, 0, owner)
        budget = Budget(self.dump_dir / "budget", Limits(SETTINGS.max_in_flight, 1 << 20, 1 << 30))
        share = budget.open()
        with LeaseKeeper(self.ledger, lease, 60.0) as keeper:

            def way(answered: Callable[[], None]) -> Way:
                return Way(
                    run=self.volume.info.run, shard=0, fence=lease.fence, target=TARGET, card=CARD,
                    layout=self.volume.layout, engine=self.engine,  # type: ignore[arg-type]
                    dumps=self.dumps or RidDumps(self.dump_dir), share=share, dump_timeout=self.dump_timeout,
                    is_same_engine=lambda: True, may_publish=keeper.check, answered=answered,
                    publishing=threading.Semaphore(SETTINGS.publishers),
                )  # fmt: skip

            layout, info = self.volume.layout, self.volume.info
            outcome = ShardRun(info, layout, self.ledger, keeper, share, SETTINGS, way, lambda *_: None).run()
        (slot,) = budget.slots()
        assert (slot.requests, slot.bytes, slot.alone) == (0, 0, False)
        assert not slot.wants or outcome.stopped_by
        share.close()
        return outcome

    def counts(self) -> Counts:
        return self.ledger.counts(len(LENGTHS))

    def asked(self) -> list[int]:
        return sorted(rid.index for rid in self.engine.asked)


def make_floor(redis: RedisServer, directory: Path, lengths: Sequence[int]) -> Floor:
    volume = make_volume(directory / "run", lengths, len(lengths))
    (directory / "dumps").mkdir()
    made = Floor(volume, reconcile(redis.client(), redis.url, volume.layout, volume.info).ledger, directory / "dumps")
    made.engine.dump = made.dump
    return made


@pytest.fixture
def floor(redis: RedisServer, tmp_path: Path) -> Iterator[Floor]:
    """Whatever happens on it, no wrong file stands there afterwards."""
    made = make_floor(redis, tmp_path, LENGTHS)
    yield made
    found = verify(made.volume.layout, made.volume.info, deep=True)
    assert found.clean, found.findings


def test_every_sample_is_published_recorded_and_listed(floor: Floor) -> None:
    outcome = floor.work()
    assert (str(outcome), outcome.ended) == ("4/4 done", True)
    assert floor.counts() == Counts(4, 4, 0, 0, sum(LENGTHS))
    assert floor.ledger.ended_shards(1) == {0}
    manifest = read_manifest(floor.volume.layout.manifest(0))
    assert manifest is not None
    assert [sample.index for sample in manifest.done] == [0, 1, 2, 3]
    assert list(floor.dump_dir.glob("req_*")) == []


def test_what_an_earlier_lease_published_is_not_asked_for_again(floor: Floor) -> None:
    floor.volume.publish(0, 2)
    floor.ledger.suspect([2])
    assert floor.work().ended
    assert floor.asked() == [1, 3]
    assert floor.counts() == Counts(4, 4, 0, 0, sum(LENGTHS))


def test_what_dead_workers_left_half_written_is_removed(floor: Floor) -> None:
    """Of the samples and of the manifest; other shards' temporary files are their holders' own."""
    layout = floor.volume.layout
    mine, manifest = temporary_name(floor.volume.path(1)), temporary_name(layout.manifest(0))
    others = temporary_name(layout.manifest(7))
    for path in (mine, manifest, others):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half")
    floor.work()
    assert (mine.exists(), manifest.exists(), others.exists()) == (False, False, True)
    others.unlink()


def test_what_an_earlier_lease_gave_up_stays_given_up(floor: Floor) -> None:
    lease = granted(floor.ledger)
    floor.ledger.commit(lease, [], [FAILED])
    floor.ledger.release(lease)
    outcome = floor.work()
    assert (outcome.ended, outcome.failed) == (True, 1)
    assert floor.asked() == [0, 2, 3]
    manifest = read_manifest(floor.volume.layout.manifest(0))
    assert manifest is not None
    assert manifest.given_up == (FAILED,)


def test_a_finished_shard_that_an_older_redis_does_not_know_is_recorded_without_a_request(floor: Floor) -> None:
    floor.volume.finish_shard(0, [FAILED])
    assert floor.work().ended
    assert floor.asked() == []
    assert floor.counts() == Counts(4, 3, 0, 1, 5 + 12 + 3)
    assert floor.ledger.ended_shards(1) == {0}


def test_recorded_samples_without_a_whole_file_are_asked_for_again(floor: Floor) -> None:
    lease = granted(floor.ledger)
    floor.ledger.commit(lease, floor.volume.publish(0, 1, 2))
    floor.ledger.release(lease)
    floor.volume.path(0).unlink()
    os.truncate(floor.volume.path(1), 70)
    leftover = floor.volume.path(3).with_name(f".{floor.volume.path(3).name}.x.tmp")
    leftover.write_bytes(b"left by a killed worker")
    assert floor.work().ended
    assert floor.asked() == [0, 1, 3]
    assert floor.counts() == Counts(4, 4, 0, 0, sum(LENGTHS))
    assert not leftover.exists()


def test_a_sample_that_keeps_failing_fails_alone(floor: Floor) -> None:
    def dump(rid: RequestId) -> None:
        if rid.index == 1:
            raise EngineRefused("500")
        floor.dump(rid)

    floor.engine.dump = dump
    outcome = floor.work()
    assert (outcome.ended, outcome.done, outcome.failed) == (True, 3, 1)
    assert floor.asked() == [0, 1, 1, 2, 3]
    assert floor.ledger.given_up()[1].error == "EngineRefused"


def test_an_engine_that_dies_gives_the_lease_back_and_marks_its_suspects(floor: Floor) -> None:
    floor.engine.error, floor.engine.stands = EngineDown("gone"), False
    outcome = floor.work()
    assert isinstance(outcome.stopped_by, EngineDown)
    assert not outcome.ended
    assert floor.ledger.holders() == {}
    suspects = floor.ledger.suspects(range(4))
    assert set(suspects) == set(floor.asked())
    assert floor.counts().pending == 4


def test_a_poison_sample_does_not_take_the_engine_down_a_third_time(floor: Floor) -> None:
    """Once among others, once alone; then it is quarantined and the others go on."""
    deaths = 0

    def dump(rid: RequestId) -> None:
        nonlocal deaths
        if rid.index == 2:
            deaths += 1
            floor.engine.stands = False
            raise EngineDown("gone")
        floor.dump(rid)

    floor.engine.dump = dump
    for _ in range(4):
        floor.engine.stands = True
        if floor.work().ended:
            break
    assert deaths == 2
    assert floor.counts() == Counts(4, 3, 0, 1, 5 + 9 + 3)
    assert floor.ledger.given_up()[2].error == "EngineKilled"


def test_a_lease_lost_on_the_way_records_nothing_more(floor: Floor) -> None:
    def dump(rid: RequestId) -> None:
        floor.dump(rid)
        if rid.index == 2:
            expire(floor.ledger, 0)
            granted(floor.ledger, owner="b")

    floor.engine.dump = dump
    outcome = floor.work()
    assert isinstance(outcome.stopped_by, LeaseLost)
    assert not floor.volume.layout.manifest(0).exists()
    assert floor.ledger.holders() == {0: "b"}
    assert floor.ledger.ended_shards(1) == set()


def test_a_volume_that_cannot_be_written_stops_the_shard_and_fails_no_sample(
    floor: Floor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "link", fail)
    outcome = floor.work()
    assert isinstance(outcome.stopped_by, VolumeUnusable)
    assert floor.counts() == Counts(4, 0, 0, 0, 0)
    assert floor.ledger.holders() == {}
    monkeypatch.undo()
    assert floor.work().ended


# --- the older layout -------------------------------------------------------------------------------------------


def older(floor: Floor) -> None:
    """Makes the engine dump as older scripts do, and the worker read that."""
    numbers = itertools.count(100)
    floor.dumps = CounterDumps(floor.dump_dir, CARD, floor.dump_dir / ".hsqueue", settle=0.05, patience=0.2)
    floor.dump_timeout = 10.0
    floor.engine.dump = lambda rid: write_counter_dump(
        floor.dump_dir, next(numbers), rid.index, floor.volume.samples[rid.index].tokens
    )


@pytest.mark.timeout(60)
def test_lengths_of_which_others_made_dumps_are_waited_for(floor: Floor) -> None:
    older(floor)
    foreign = [write_counter_dump(floor.dump_dir, number, 77, tokens) for number, tokens in enumerate(LENGTHS)]
    assert str(floor.work()) == "4/4 done"
    assert all(directory.exists() for directory in foreign)


@pytest.mark.timeout(60)
def test_samples_that_cannot_be_told_from_health_checks_fail_and_the_shard_ends(
    redis: RedisServer, tmp_path: Path
) -> None:
    """Ambiguous samples are tried again alone, and must not wait for themselves."""
    floor = make_floor(redis, tmp_path, (1, 6, 1))
    older(floor)
    outcome = floor.work()
    assert (outcome.ended, outcome.done, outcome.failed) == (True, 1, 2)
    assert {given.error for given in floor.ledger.given_up().values()} == {"DumpAmbiguous"}
    assert floor.asked() == [1]


def test_a_plan_that_cannot_be_read_fails_its_samples_by_name_and_retry_brings_them_back(
    redis: RedisServer, tmp_path: Path
) -> None:
    floor = make_floor(redis, tmp_path, LENGTHS)
    floor.volume.publish(0, 2)
    path = floor.volume.layout.plan_shard(0)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    outcome = floor.work()
    assert (outcome.ended, outcome.done, outcome.failed) == (True, 2, 2)
    assert {given.error for given in floor.ledger.given_up().values()} == {"RunDamaged"}
    assert floor.asked() == []
    path.write_bytes(whole)
    assert retry(floor.volume.layout, floor.volume.info, floor.ledger, {Ending.FAILED}) == 2
    assert floor.work().done == len(LENGTHS)


def stops_without_failures(floor: Floor, monkeypatch: pytest.MonkeyPatch, read_plan: Callable[..., None]) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(pq, "ParquetFile", read_plan)
        outcome = floor.work()
    assert isinstance(outcome.stopped_by, VolumeUnusable)
    assert (outcome.ended, outcome.failed) == (False, 0)


def test_a_plan_that_the_volume_does_not_give_fails_nothing(
    redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server went after the shard's files were listed."""
    floor = make_floor(redis, tmp_path, LENGTHS)

    def fails(*_: object, **__: object) -> None:
        raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))

    stops_without_failures(floor, monkeypatch, fails)
    expire(floor.ledger, 0)
    assert floor.work().done == len(LENGTHS)


def test_a_volume_that_goes_before_its_plan_is_read_fails_nothing(
    redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    floor = make_floor(redis, tmp_path, LENGTHS)
    root, away = floor.volume.layout.root, tmp_path / "away"

    def unmounted(*_: object, **__: object) -> None:
        root.rename(away)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    stops_without_failures(floor, monkeypatch, unmounted)
    away.rename(root)
    expire(floor.ledger, 0)
    assert floor.work().done == len(LENGTHS)


def test_a_volume_that_is_away_fails_nothing_and_makes_nothing_under_the_mount_point(
    redis: RedisServer, tmp_path: Path
) -> None:
    floor = make_floor(redis, tmp_path, LENGTHS)
    root = floor.volume.layout.root
    root.rename(tmp_path / "elsewhere")
    root.mkdir()
    outcome = floor.work()
    assert isinstance(outcome.stopped_by, VolumeUnusable)
    assert list(root.iterdir()) == []
    assert floor.counts() == Counts(4, 0, 0, 0, 0)


def test_a_shard_that_is_leased_again_and_again_without_progress_ends_as_failed(floor: Floor) -> None:
    for _ in range(SETTINGS.max_leases):
        granted(floor.ledger)
        expire(floor.ledger, 0)
    outcome = floor.work()
    assert (outcome.ended, outcome.failed) == (True, len(LENGTHS))
    assert {given.error for given in floor.ledger.given_up().values()} == {"LeasesExhausted"}
    assert floor.asked() == []


def test_progress_starts_the_count_of_leases_anew(floor: Floor) -> None:
    for k in range(SETTINGS.max_leases):
        lease = granted(floor.ledger)
        if k == 5:
            floor.volume.publish(0, 0)
            floor.ledger.commit(lease, [Published(0, LENGTHS[0], 1, "")])
        expire(floor.ledger, 0)
    assert floor.work().done == len(LENGTHS)


def test_a_slow_volume_is_named_once_and_stops_nothing(
    redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    floor = make_floor(redis, tmp_path, [4] * (2 * ENOUGH))
    fsync = os.fsync

    def slow(descriptor: int) -> None:
        threading.Event().wait(SLOW_VOLUME * 1.05)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", slow)
    with caplog.at_level("WARNING", "hsworker.account"):
        assert floor.work().ended
    assert [record.getMessage().count("the volume is slow") for record in caplog.records] == [1]
