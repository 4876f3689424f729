"""Repair, retry and clean on a run without a ledger; with one they are integration tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hsqueue.contracts.sample import Ending, GivenUp
from hsqueue.store.clean import remove_work_files
from hsqueue.store.repair import repair
from hsqueue.store.retry import retry
from hsqueue.store.survey import survey, survey_shard
from hsqueue.store.verify import verify
from tests.support.volume import Volume

SKIPPED = GivenUp(1, Ending.SKIPPED, 0, "SampleTooLong", "")
FAILED = GivenUp(4, Ending.FAILED, 5, "DumpMissing", "")


@pytest.fixture
def finished(volume: Volume) -> Volume:
    volume.finish_shard(0)
    volume.finish_shard(1)
    return volume


def mend(volume: Volume) -> int:
    return repair(volume.layout, volume.info, None, verify(volume.layout, volume.info, deep=True).findings)


def done(volume: Volume) -> list[int]:
    return [p.index for state in survey(volume.layout, volume.info) for p in state.done]


def truncate(volume: Volume) -> None:
    os.truncate(volume.path(1), 100)


def flip(volume: Volume) -> None:
    data = bytearray(volume.path(1).read_bytes())
    data[-20] ^= 1
    volume.path(1).write_bytes(data)


def lose(volume: Volume) -> None:
    volume.path(1).unlink()


def foreign(volume: Volume) -> None:
    volume.path(1).write_bytes(volume.path(3).read_bytes())


@pytest.mark.parametrize("harm", [truncate, flip, lose, foreign])
def test_repair_makes_the_wrong_sample_pending_and_no_other(finished: Volume, harm: Callable[[Volume], None]) -> None:
    harm(finished)
    assert mend(finished) == 1
    assert done(finished) == [0, 2, 3, 4, 5]
    assert [state.ended for state in survey(finished.layout, finished.info)] == [False, True]
    assert verify(finished.layout, finished.info, deep=True).clean


def test_a_repaired_sample_can_be_published_again(finished: Volume) -> None:
    flip(finished)
    mend(finished)
    finished.publish(1)
    finished.write_manifest(0, survey_shard(finished.layout, finished.info, 0).done)
    found = verify(finished.layout, finished.info, deep=True)
    assert (found.clean, found.missing) == (True, 0)


def test_what_repair_takes_away_is_kept_in_quarantine(finished: Volume) -> None:
    flip(finished)
    wrong = finished.path(1).read_bytes()
    extra = finished.layout.shard_directory(1) / "notes.txt"
    extra.write_text("x")
    assert mend(finished) == 1
    # Behind the name stands a time, so that a second damaged file of a sample does not take the first one's place.
    kept = {path.name.rsplit(".", 1)[0]: path.read_bytes() for path in finished.layout.quarantine.iterdir()}
    assert kept == {"000000-000000000001.safetensors": wrong, "000001-notes.txt": b"x"}
    assert not extra.exists()


def test_repairing_a_damaged_manifest_keeps_every_file(finished: Volume) -> None:
    os.truncate(finished.layout.manifest(0), 40)
    assert mend(finished) == 0
    assert done(finished) == [0, 1, 2, 3, 4, 5]
    assert verify(finished.layout, finished.info, deep=False).clean


def test_nothing_to_repair_changes_nothing(finished: Volume) -> None:
    assert mend(finished) == 0
    assert not finished.layout.quarantine.exists()
    assert all(state.ended for state in survey(finished.layout, finished.info))


@pytest.mark.parametrize(
    ("endings", "pending"), [({Ending.FAILED}, [4]), ({Ending.SKIPPED}, [1]), ({Ending.FAILED, Ending.SKIPPED}, [1, 4])]
)
def test_retry_opens_the_shards_of_what_it_is_asked_for(
    volume: Volume, endings: set[Ending], pending: list[int]
) -> None:
    volume.finish_shard(0, [SKIPPED])
    volume.finish_shard(1, [FAILED])
    assert retry(volume.layout, volume.info, None, endings) == len(pending)
    states = list(survey(volume.layout, volume.info))
    assert [state.ended for state in states] == [1 not in pending, 4 not in pending]
    assert done(volume) == [0, 2, 3, 5]


def test_retry_without_anything_to_retry_changes_nothing(finished: Volume) -> None:
    assert retry(finished.layout, finished.info, None, set(Ending)) == 0
    assert all(state.ended for state in survey(finished.layout, finished.info))


def work_files(volume: Volume) -> list[Path]:
    """What processes leave that were killed, and what the run keeps beside its results."""
    root = volume.layout.root
    paths = [
        volume.path(1).with_name(f".{volume.path(1).name}.7.0.abcdef.tmp"),
        volume.layout.manifest(1).with_name(".shard-000001.json.x.abcdef.tmp"),
        root / "logs" / "gpu0.log", root / "redis" / "appendonlydir" / "a.aof", root / "quarantine" / "x",
    ]  # fmt: skip
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"12345")
    return paths


def test_clean_removes_what_is_no_result(finished: Volume) -> None:
    results = sorted(path for path in finished.layout.root.rglob("*") if path.is_file())
    made = work_files(finished)
    assert remove_work_files(finished.layout) == (len(made), 5 * len(made))
    assert sorted(path for path in finished.layout.root.rglob("*") if path.is_file()) == results


def test_a_clean_run_has_nothing_to_remove(finished: Volume) -> None:
    assert remove_work_files(finished.layout) == (0, 0)
