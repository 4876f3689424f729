"""From the volume to the ledger: the volume is the truth, whatever Redis says."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from hsqueue.contracts.errors import HsqueueError, LeaseLost
from hsqueue.contracts.sample import Ending, GivenUp, Published
from hsqueue.ledger import rebuild as rebuilding
from hsqueue.ledger.connect import connect
from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.rebuild import Reconciled, new_epoch, rebuild, reconcile
from hsqueue.ledger.records import Counts
from hsqueue.planning.plan import load_run
from hsqueue.store.layout import RunLayout
from tests.support.ledger import granted
from tests.support.redis import RedisServer
from tests.support.volume import Volume, make_volume

LENGTHS = (5, 9, 5, 3, 12, 7, 4)
SKIPPED = GivenUp(1, Ending.SKIPPED, 0, "SampleTooLong", "")


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    """Seven samples in three shards, none of them published."""
    return make_volume(tmp_path / "run", LENGTHS, 3)


def agree(redis: RedisServer, volume: Volume) -> Reconciled:
    return reconcile(redis.client(), redis.url, volume.layout, volume.info)


def told(ledger: Ledger, shard: int, done: list[Published], given_up: list[GivenUp] | None = None) -> None:
    """As the worker of a shard that has not ended tells the ledger."""
    lease = granted(ledger, shard)
    ledger.commit(lease, done, given_up or [])
    ledger.release(lease)


def counts(ledger: Ledger) -> Counts:
    return ledger.counts(len(LENGTHS))


# --- Redis is older than the volume, as after a restored backup --------------------------------------------


def back_to(redis: RedisServer, backup: dict[str, bytes]) -> None:
    redis.client().flushall()
    for key, value in backup.items():
        redis.client().execute_command("RESTORE", key, 0, value)


def backup_of(redis: RedisServer) -> dict[str, bytes]:
    client = redis.client()
    return {key: client.execute_command("DUMP", key, NEVER_DECODE=True) for key in client.scan_iter("*")}


def test_a_ledger_of_an_earlier_epoch_is_built_anew(redis: RedisServer, volume: Volume) -> None:
    agree(redis, volume)
    backup = backup_of(redis)
    redis.client().flushall()
    agree(redis, volume)
    back_to(redis, backup)
    found = agree(redis, volume)
    assert found.rebuilt
    assert granted(found.ledger).fence >> 32 == 3


def test_a_ledger_that_would_grant_a_fence_again_is_built_anew(redis: RedisServer, volume: Volume) -> None:
    ledger = agree(redis, volume).ledger
    backup = backup_of(redis)
    lease = granted(ledger)
    volume.write_manifest(0, volume.publish(0, 1, 2), fence=lease.fence)
    back_to(redis, backup)
    found = agree(redis, volume)
    assert found.rebuilt
    assert found.ledger.ended_shards(3) == {0}
    assert granted(found.ledger, 1).fence > lease.fence


def test_a_ledger_as_new_as_the_volume_stays(redis: RedisServer, volume: Volume) -> None:
    ledger = agree(redis, volume).ledger
    lease = granted(ledger)
    done = volume.publish(0, 1, 2)
    ledger.commit(lease, done)
    volume.write_manifest(0, done, fence=lease.fence)
    ledger.finish(lease)
    assert not agree(redis, volume).rebuilt


# --- Redis knows nothing ------------------------------------------------------------------------------------


def test_an_empty_redis_is_built_from_the_volume(redis: RedisServer, volume: Volume) -> None:
    volume.finish_shard(0, [SKIPPED])
    volume.publish(4)
    found = agree(redis, volume)
    assert (found.rebuilt, found.missing) == (True, 0)
    assert counts(found.ledger) == Counts(7, 3, 1, 0, 5 + 5 + 12)
    assert found.ledger.done_in(range(7)) == {0, 2, 4}
    assert found.ledger.given_up() == {1: SKIPPED}
    assert found.ledger.ended_shards(3) == {0}


def test_the_ledger_knows_where_the_run_lies(redis: RedisServer, volume: Volume) -> None:
    info = agree(redis, volume).ledger.info()
    assert info is not None
    assert (info.dir, info.samples, info.shards, info.shard_size) == (str(volume.layout.root), 7, 3, 3)
    assert info.queue == volume.info.fingerprint.target.queue


def test_losing_redis_twice_gives_a_higher_epoch_each_time(redis: RedisServer, volume: Volume) -> None:
    fences = []
    for _ in range(3):
        redis.client().flushall()
        fences.append(granted(agree(redis, volume).ledger).fence)
    assert [fence >> 32 for fence in fences] == [1, 2, 3]


def test_a_lease_from_before_the_loss_is_void(redis: RedisServer, volume: Volume) -> None:
    before = agree(redis, volume).ledger
    lease = granted(before)
    redis.client().flushall()
    after = agree(redis, volume).ledger
    with pytest.raises(LeaseLost):
        before.commit(lease, volume.publish(0))
    assert counts(after).done == 0


def test_damaged_files_and_stale_manifests_make_room_for_good_ones(redis: RedisServer, volume: Volume) -> None:
    volume.finish_shard(0)
    volume.finish_shard(1)
    os.truncate(volume.path(1), 50)
    os.truncate(volume.layout.manifest(1), 10)
    ledger = agree(redis, volume).ledger
    assert ledger.done_in(range(7)) == {0, 2, 3, 4, 5}
    assert ledger.ended_shards(3) == set()
    assert not volume.path(1).exists()
    assert not volume.layout.manifest(0).exists()
    assert not volume.layout.manifest(1).exists()


def test_a_file_of_a_sample_given_up_is_counted_once(redis: RedisServer, volume: Volume) -> None:
    volume.finish_shard(0, [SKIPPED])
    volume.publish(1)
    volume.path(0).unlink()
    assert counts(agree(redis, volume).ledger) == Counts(7, 2, 0, 0, 9 + 5)


def rebuild_in_a_process(arguments: tuple[str, Path]) -> tuple[int, int]:
    url, root = arguments
    found = reconcile(connect(url), url, RunLayout(root), load_run(root))
    info = found.ledger.info()
    assert info is not None
    return info.epoch, found.ledger.counts(len(LENGTHS)).done


def test_processes_that_rebuild_at_once_end_with_one_ledger(redis: RedisServer, volume: Volume) -> None:
    volume.finish_shard(0)
    with ProcessPoolExecutor(4, multiprocessing.get_context("spawn")) as pool:
        found = set(pool.map(rebuild_in_a_process, [(redis.url, volume.layout.root)] * 4))
    assert len(found) == 1
    epoch, done = found.pop()
    assert done == 3
    assert [int(path.name) for path in volume.layout.epochs.iterdir()] == [epoch]


def test_a_process_that_comes_too_late_to_rebuild_leaves_no_lock(
    redis: RedisServer, volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another finished between its look at the ledger and its own attempt."""
    ledger = agree(redis, volume).ledger
    info, looks = Ledger.info, iter(["too early"])
    monkeypatch.setattr(Ledger, "info", lambda self: None if next(looks, None) else info(self))
    assert agree(redis, volume).ledger.run == volume.info.run
    assert not redis.client().exists(ledger.keys.rebuilding)


def test_a_run_whose_volume_is_away_is_not_taken_for_an_empty_one(redis: RedisServer, volume: Volume) -> None:
    """As when a mount is missing: the ledger must not say that nothing was done."""
    volume.finish_shard(0)
    volume.layout.root.rename(volume.layout.root.with_name("elsewhere"))
    with pytest.raises(HsqueueError):
        agree(redis, volume)
    assert not volume.layout.root.exists()
    assert Ledger(redis.client(), redis.url, volume.info.run).info() is None


# --- Redis knows the run --------------------------------------------------------------------------------------


def test_a_ledger_that_agrees_is_left_alone(redis: RedisServer, volume: Volume) -> None:
    ledger = agree(redis, volume).ledger
    told(ledger, 0, volume.publish(0, 1), [GivenUp(2, Ending.FAILED, 5, "DumpMissing", "")])
    before = counts(ledger)
    found = agree(redis, volume)
    assert (found.rebuilt, found.missing, counts(found.ledger)) == (False, 0, before)


def test_a_recorded_sample_without_a_file_is_pending_again(redis: RedisServer, volume: Volume) -> None:
    told(agree(redis, volume).ledger, 0, volume.publish(0, 1, 2))
    volume.path(1).unlink()
    found = agree(redis, volume)
    assert (found.rebuilt, found.missing) == (False, 1)
    assert counts(found.ledger) == Counts(7, 2, 0, 0, 5 + 5)


def test_a_recorded_sample_with_a_torn_file_is_pending_again(redis: RedisServer, volume: Volume) -> None:
    told(agree(redis, volume).ledger, 0, volume.publish(0, 1, 2))
    os.truncate(volume.path(1), 99)
    assert agree(redis, volume).missing == 1
    assert not volume.path(1).exists()


def test_an_ended_shard_that_lost_a_file_is_open_again(redis: RedisServer, volume: Volume) -> None:
    manifest = volume.finish_shard(0, [SKIPPED])
    ledger = agree(redis, volume).ledger
    volume.path(2).unlink()
    found = agree(redis, volume)
    assert found.missing == 1
    assert ledger.ended_shards(3) == set()
    assert not volume.layout.manifest(0).exists()
    assert counts(ledger) == Counts(7, 1, 1, 0, manifest.done[0].tokens)


def test_an_ended_shard_that_lost_its_manifest_is_open_again(redis: RedisServer, volume: Volume) -> None:
    volume.finish_shard(0)
    ledger = agree(redis, volume).ledger
    volume.layout.manifest(0).unlink()
    found = agree(redis, volume)
    assert (found.missing, ledger.ended_shards(3), counts(ledger).done) == (0, set(), 3)


def test_files_that_an_older_redis_does_not_know_stay_for_the_worker_that_adopts_them(
    redis: RedisServer, volume: Volume
) -> None:
    ledger = agree(redis, volume).ledger
    manifest = volume.finish_shard(0)
    volume.publish(4)
    found = agree(redis, volume)
    assert (found.rebuilt, found.missing, counts(ledger).done) == (False, 0, 0)
    assert ledger.claim([0, 1, 2], None) == [0, 1, 2]
    assert all(volume.path(d.index).exists() for d in manifest.done)
    assert volume.layout.manifest(0).exists()


def test_a_shard_at_work_is_left_to_its_worker(redis: RedisServer, volume: Volume) -> None:
    ledger = agree(redis, volume).ledger
    lease = granted(ledger)
    ledger.commit(lease, volume.publish(0, 1))
    volume.path(1).unlink()
    assert agree(redis, volume).missing == 0
    assert ledger.renew(lease, 60.0)


def test_rebuilding_by_hand_replaces_what_redis_says(redis: RedisServer, volume: Volume) -> None:
    ledger = agree(redis, volume).ledger
    told(ledger, 0, volume.publish(0), [SKIPPED])
    shutil.rmtree(volume.layout.samples)
    volume.publish(6)
    assert counts(rebuild(redis.client(), redis.url, volume.layout, volume.info)) == Counts(7, 1, 0, 0, 4)


# --- epochs ---------------------------------------------------------------------------------------------------


def test_epochs_count_on_and_survive_foreign_files(volume: Volume) -> None:
    assert [new_epoch(volume.layout) for _ in range(3)] == [1, 2, 3]
    (volume.layout.epochs / "000041").touch()
    (volume.layout.epochs / "notes.txt").touch()
    assert new_epoch(volume.layout) == 42


def epoch_in_a_process(root: Path) -> list[int]:
    return [rebuilding.new_epoch(RunLayout(root)) for _ in range(20)]


def test_no_two_processes_get_the_same_epoch(volume: Volume) -> None:
    with ProcessPoolExecutor(3, multiprocessing.get_context("spawn")) as pool:
        found = [epoch for part in pool.map(epoch_in_a_process, [volume.layout.root] * 3) for epoch in part]
    assert sorted(found) == list(range(1, 61))
