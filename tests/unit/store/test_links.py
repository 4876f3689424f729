"""A link within a run may lead anywhere, so nothing behind it is read as the run's, written or removed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hsqueue.contracts.errors import VolumeUnusable
from hsqueue.ledger.rebuild import remove_unsound
from hsqueue.store.files import require_inside
from hsqueue.store.repair import repair
from hsqueue.store.survey import ShardState, survey_shard
from hsqueue.store.verify import verify
from tests.support.volume import Volume


@pytest.fixture
def finished(volume: Volume) -> Volume:
    volume.finish_shard(0)
    volume.finish_shard(1)
    return volume


def behind_a_link(volume: Volume, path: Path) -> Path:
    """Moves `path` out of the run, leaves a link, and returns where it is now."""
    outside = volume.layout.root.parent / "elsewhere"
    shutil.move(path, outside)
    path.symlink_to(outside)
    return outside


def mend(volume: Volume) -> int:
    return repair(volume.layout, volume.info, None, verify(volume.layout, volume.info, deep=True).findings)


def test_a_link_to_a_whole_file_counts_as_damaged(finished: Volume) -> None:
    behind_a_link(finished, finished.path(1))
    state = survey_shard(finished.layout, finished.info, 0)
    assert (state.damaged, state.ended, [d.index for d in state.done]) == ((1,), False, [0, 2])


@pytest.mark.parametrize("place", ["samples", "samples/000", "samples/000/000000"])
def test_files_behind_a_linked_directory_do_not_count(finished: Volume, place: str) -> None:
    behind_a_link(finished, finished.layout.root / place)
    assert survey_shard(finished.layout, finished.info, 0).done == ()
    assert not verify(finished.layout, finished.info, deep=False).clean


@pytest.mark.parametrize(
    "place", ["samples", "samples/000", "samples/000/000000", "samples/000/000000/000000000001.safetensors"]
)
def test_repair_takes_the_link_away_and_leaves_what_it_led_to(finished: Volume, place: str) -> None:
    outside = behind_a_link(finished, finished.layout.root / place)
    before = sorted(path for path in outside.rglob("*"))
    assert mend(finished) > 0
    assert not (finished.layout.root / place).is_symlink()
    assert outside.exists()
    assert sorted(path for path in outside.rglob("*")) == before
    assert verify(finished.layout, finished.info, deep=True).clean


def test_nothing_is_removed_behind_a_link(finished: Volume) -> None:
    outside = behind_a_link(finished, finished.layout.shard_directory(0))
    with pytest.raises(VolumeUnusable, match="is a link"):
        remove_unsound(finished.layout, [ShardState(0, (), (), False, True, (0,))])
    assert len(list(outside.iterdir())) == 3


def test_a_linked_run_is_a_run(finished: Volume, tmp_path: Path) -> None:
    """Users put runs on other disks; what matters is that nothing leads out of the run."""
    name = tmp_path / "name"
    name.symlink_to(finished.layout.root)
    require_inside(name, name / "samples" / "000", name / "manifests")
