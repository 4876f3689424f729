"""Every message is handled without an error, whatever it asks for; the engine is never reached here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hsqueue.contracts.card import CARD_NAME
from hsqueue.contracts.errors import EngineRefused
from hsqueue.contracts.message import ShardMessage
from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.rebuild import reconcile
from hsqueue.settings import Settings
from hsworker.life import Pause
from hsworker.pause import read_pause, write_pause
from hsworker.pinning import Pin
from hsworker.station import Station
from tests.support.fakeengine import CARD
from tests.support.ledger import granted
from tests.support.redis import RedisServer, free_port
from tests.support.volume import Volume, make_volume

Make = Callable[..., Station]


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    """Four samples in two shards."""
    return make_volume(tmp_path / "volume" / "run", (5, 9, 5, 3), 2)


@pytest.fixture
def known(redis: RedisServer, volume: Volume) -> Ledger:
    """With both shards queued."""
    ledger = reconcile(redis.client(), redis.url, volume.layout, volume.info).ledger
    assert ledger.claim([0, 1], None) == [0, 1]
    return ledger


@pytest.fixture
def make(redis: RedisServer, tmp_path: Path) -> Make:
    """A station whose engine is gone but for its card."""
    pin = Pin(f"http://127.0.0.1:{free_port()}", tmp_path / "dumps", "gpu0")
    pin.workspace.mkdir(parents=True)
    (pin.dump_dir / CARD_NAME).write_text(CARD.to_json())
    return lambda **settings: Station(pin, Settings(**settings), redis.url)


def work(station: Station, run: str, shard: int) -> str:
    found = station.work(ShardMessage(run, shard, 2), lambda ended, total, tokens: None)
    assert station.budget.slots() == [], "the share is given back"
    return found


def is_open(known: Ledger, shard: int) -> bool:
    """Whether a reaper sends the shard again at once."""
    return known.claim([shard], None) == [shard]


def test_an_ended_or_held_shard_is_passed_over(make: Make, known: Ledger, volume: Volume) -> None:
    known.finish(granted(known, 0))
    granted(known, 1, owner="another")
    assert work(make(), volume.info.run, 0).startswith("skipped: ended")
    assert "another" in work(make(), volume.info.run, 1)


@pytest.mark.parametrize("shard", [2, 1000, (1 << 40) - 1])
def test_a_shard_that_the_run_does_not_have_is_refused(make: Make, known: Ledger, volume: Volume, shard: int) -> None:
    work(make(), volume.info.run, shard)
    assert known.holders() == {}


def test_a_run_that_redis_does_not_know_is_handed_back(make: Make) -> None:
    assert "knows no run" in work(make(), "unknown", 0)


def test_a_run_outside_the_volumes_of_this_worker_is_handed_back_untouched(
    make: Make, known: Ledger, volume: Volume, tmp_path: Path
) -> None:
    assert "outside the volumes" in work(make(volumes=str(tmp_path / "other")), volume.info.run, 0)
    assert is_open(known, 0)
    assert not volume.layout.samples.exists()


def test_a_run_for_another_engine_is_handed_back_and_the_difference_named(
    make: Make, known: Ledger, volume: Volume, tmp_path: Path
) -> None:
    (tmp_path / "dumps" / CARD_NAME).write_text(replace(CARD, norm="pre").to_json())
    assert "norm: the run needs post, the engine is pre" in work(make(), volume.info.run, 0)
    assert known.holders() == {}


def test_an_engine_that_was_restarted_as_something_else_pauses_the_worker(
    make: Make, known: Ledger, volume: Volume, tmp_path: Path
) -> None:
    station = make()
    (tmp_path / "dumps" / CARD_NAME).write_text(replace(CARD, dtype="float16", instance="i2").to_json())
    assert "was restarted as something else" in work(station, volume.info.run, 0)
    pause = read_pause(station.pin.pause_path)
    assert pause is not None
    assert pause.kind == "engine"
    assert is_open(known, 0)


def test_an_engine_that_is_gone_pauses_the_worker_and_gives_the_lease_back(
    make: Make, known: Ledger, volume: Volume
) -> None:
    station = make()
    assert "stopped" in work(station, volume.info.run, 0)
    pause = read_pause(station.pin.pause_path)
    assert pause is not None
    assert pause.kind == "engine"
    assert known.holders() == {}
    assert is_open(known, 0)


def test_a_paused_worker_takes_no_lease(make: Make, known: Ledger, volume: Volume) -> None:
    station = make()
    write_pause(station.pin.pause_path, Pause("engine", "", "gone"))
    assert work(station, volume.info.run, 0) == "handed back: the worker is paused or stopping"
    assert known.lease_attempts([0]) == {}
    assert is_open(known, 0)


def test_a_run_whose_volume_is_away_pauses_the_worker(make: Make, known: Ledger, volume: Volume) -> None:
    volume.layout.root.rename(volume.layout.root.with_name("elsewhere"))
    station = make()
    assert "handed back" in work(station, volume.info.run, 0)
    pause = read_pause(station.pin.pause_path)
    assert pause is not None
    assert pause.kind == "volume"
    assert not volume.layout.root.exists()


def test_a_run_that_redis_lost_before_any_reaper_saw_it_is_rebuilt_by_who_works_at_it(
    make: Make, known: Ledger, volume: Volume, redis: RedisServer
) -> None:
    station = make()
    work(station, volume.info.run, 0)
    station.pin.pause_path.unlink()
    volume.publish(2)
    redis.client().flushall()
    work(station, volume.info.run, 1)
    info = known.info()
    assert info is not None
    assert info.epoch == 2
    assert known.done_in(range(4)) == {2}


def test_a_lease_lost_with_all_of_redis_is_a_reason_to_rebuild(
    make: Make, known: Ledger, volume: Volume, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    station = make(lease_ttl=0.6, dump_timeout=0.1)
    monkeypatch.setattr(station.engine, "prefill", lambda *_: _lose_everything(redis))
    assert "is lost" in work(station, volume.info.run, 0)
    info = known.info()
    assert info is not None
    assert info.epoch == 2


def test_a_dropped_run_is_not_rebuilt_by_a_worker(make: Make, known: Ledger, volume: Volume) -> None:
    station = make()
    work(station, volume.info.run, 0)
    station.pin.pause_path.unlink()
    known.drop()
    assert "knows no run" in work(station, volume.info.run, 1)
    assert known.info() is None


def _lose_everything(redis: RedisServer) -> None:
    redis.client().flushall()
    raise EngineRefused("not now")
