"""Repair and retry with a ledger: only what was asked for is pending again, in both."""

from __future__ import annotations

from pathlib import Path

import pytest

from hsqueue.contracts.sample import Ending, GivenUp
from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.rebuild import reconcile
from hsqueue.ledger.records import Counts
from hsqueue.store.repair import repair
from hsqueue.store.retry import retry
from hsqueue.store.verify import verify
from tests.support.ledger import granted
from tests.support.redis import RedisServer
from tests.support.volume import Volume, make_volume

LENGTHS = (5, 9, 5, 3, 12, 7)
SKIPPED = GivenUp(1, Ending.SKIPPED, 0, "SampleTooLong", "")
FAILED = GivenUp(2, Ending.FAILED, 5, "DumpMissing", "")


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    """Two finished shards; of the first one sample was skipped and one failed."""
    made = make_volume(tmp_path / "run", LENGTHS, 3)
    made.finish_shard(0, [SKIPPED, FAILED])
    made.finish_shard(1)
    return made


@pytest.fixture
def ledger(redis: RedisServer, volume: Volume) -> Ledger:
    made = reconcile(redis.client(), redis.url, volume.layout, volume.info).ledger
    assert made.counts(6) == Counts(6, 4, 1, 1, 5 + 3 + 12 + 7)
    return made


def mend(volume: Volume, ledger: Ledger) -> int:
    return repair(volume.layout, volume.info, ledger, verify(volume.layout, volume.info, deep=True).findings)


def flip(volume: Volume, index: int) -> None:
    data = bytearray(volume.path(index).read_bytes())
    data[-30] ^= 1
    volume.path(index).write_bytes(data)


def test_repair_makes_the_wrong_sample_pending_and_keeps_the_endings_of_the_others(
    volume: Volume, ledger: Ledger
) -> None:
    flip(volume, 0)
    assert mend(volume, ledger) == 1
    assert ledger.counts(6) == Counts(6, 3, 1, 1, 3 + 12 + 7)
    assert ledger.given_up() == {1: SKIPPED, 2: FAILED}
    assert ledger.ended_shards(2) == {1}
    assert ledger.claim([0, 1], None) == [0]


def test_repair_of_two_shards_counts_both(volume: Volume, ledger: Ledger) -> None:
    flip(volume, 0)
    volume.path(4).unlink()
    assert mend(volume, ledger) == 2
    assert ledger.done_in(range(6)) == {3, 5}
    assert ledger.ended_shards(2) == set()


def test_repair_of_a_manifest_asks_for_no_sample(volume: Volume, ledger: Ledger) -> None:
    volume.layout.manifest(0).write_text("{")
    assert mend(volume, ledger) == 0
    assert ledger.counts(6) == Counts(6, 4, 1, 1, 27)
    assert ledger.ended_shards(2) == {1}


@pytest.mark.parametrize(
    ("endings", "counts"),
    [
        ({Ending.FAILED}, Counts(6, 4, 1, 0, 27)),
        ({Ending.SKIPPED}, Counts(6, 4, 0, 1, 27)),
        ({Ending.FAILED, Ending.SKIPPED}, Counts(6, 4, 0, 0, 27)),
    ],
)
def test_retry_takes_back_the_endings_that_were_asked_for(
    volume: Volume, ledger: Ledger, endings: set[Ending], counts: Counts
) -> None:
    assert retry(volume.layout, volume.info, ledger, endings) == counts.pending
    assert ledger.counts(6) == counts
    assert ledger.ended_shards(2) == {1}
    assert ledger.claim([0, 1], None) == [0]
    assert not volume.layout.manifest(0).exists()


def test_retry_gives_a_shard_that_has_not_ended_another_chance(volume: Volume, ledger: Ledger) -> None:
    volume.layout.manifest(0).unlink()
    ledger.reopen(0)
    assert retry(volume.layout, volume.info, ledger, {Ending.FAILED}) == 1
    assert ledger.counts(6).failed == 0


def test_a_retried_shard_counts_its_leases_from_one_again(volume: Volume, ledger: Ledger) -> None:
    ledger.reopen(0)
    ledger.release(granted(ledger, 0))
    ledger.release(granted(ledger, 0))
    retry(volume.layout, volume.info, ledger, {Ending.FAILED})
    assert granted(ledger, 0).attempt == 1


def test_a_retry_while_redis_is_stopped_counts_once_it_is_back(
    redis: RedisServer, volume: Volume, ledger: Ledger
) -> None:
    """As ``hsqueue retry`` after a ``hsqueue run`` with an embedded Redis, which keeps its data."""
    assert retry(volume.layout, volume.info, None, {Ending.FAILED}) == 1
    found = reconcile(redis.client(), redis.url, volume.layout, volume.info)
    assert found.ledger.counts(6).failed == 0
    assert found.ledger.ended_shards(2) == {1}
