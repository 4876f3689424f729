from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from hsqueue.contracts.errors import VolumeUnusable
from hsqueue.contracts.sample import Ending, GivenUp, Published
from hsqueue.store.survey import ShardState, is_untouched, survey, survey_shard
from tests.support.volume import Volume, make_volume

SKIPPED = GivenUp(1, Ending.SKIPPED, 0, "SampleTooLong", "")


def look(volume: Volume, shard: int = 0) -> ShardState:
    return survey_shard(volume.layout, volume.info, shard)


def indices(state: ShardState) -> list[int]:
    return [published.index for published in state.done]


def test_an_untouched_shard_holds_nothing(volume: Volume) -> None:
    assert look(volume) == ShardState(0, (), (), ended=False, stale=False, damaged=())


def test_files_without_a_manifest_are_found_by_their_headers(volume: Volume) -> None:
    published = volume.publish(0, 2)
    assert look(volume) == ShardState(0, tuple(published), (), ended=False, stale=False, damaged=())


def test_a_finished_shard_is_ended(volume: Volume) -> None:
    manifest = volume.finish_shard(0, [SKIPPED])
    assert look(volume) == ShardState(
        0, manifest.done, (SKIPPED,), ended=True, stale=False, damaged=(), fence=manifest.fence
    )


def test_files_that_a_manifest_vouches_for_are_not_opened(volume: Volume, monkeypatch: pytest.MonkeyPatch) -> None:
    volume.finish_shard(0)

    def opened(path: object) -> None:
        raise AssertionError(f"{path} was read")

    monkeypatch.setattr("hsqueue.store.survey.read_sample_header", opened)
    assert look(volume).ended


def test_a_missing_file_reopens_the_shard(volume: Volume) -> None:
    volume.finish_shard(0)
    volume.path(1).unlink()
    state = look(volume)
    assert indices(state) == [0, 2]
    assert (state.ended, state.stale, state.damaged) == (False, True, ())


@pytest.mark.parametrize("with_manifest", [True, False])
@pytest.mark.parametrize("size", [0, 7, 100, -1])
def test_a_truncated_file_is_damaged(volume: Volume, with_manifest: bool, size: int) -> None:
    if with_manifest:
        volume.finish_shard(0)
    else:
        volume.publish(0, 1, 2)
    whole = volume.path(1).stat().st_size
    os.truncate(volume.path(1), size if size >= 0 else whole + size)
    state = look(volume)
    assert indices(state) == [0, 2]
    assert (state.ended, state.stale, state.damaged) == (False, with_manifest, (1,))


def swap(volume: Volume, one: int, other: int) -> None:
    aside = volume.path(one).with_name("aside")
    volume.path(one).rename(aside)
    volume.path(other).rename(volume.path(one))
    aside.rename(volume.path(other))


def test_swapped_files_are_damaged(volume: Volume) -> None:
    volume.publish(0, 1, 2)
    swap(volume, 0, 2)
    assert look(volume).damaged == (0, 2)


def test_swapped_files_of_other_sizes_are_damaged_in_spite_of_the_manifest(volume: Volume) -> None:
    volume.finish_shard(0)
    swap(volume, 0, 1)
    state = look(volume)
    assert (state.ended, state.stale, state.damaged) == (False, True, (0, 1))


def test_a_file_of_another_run_is_damaged(volume: Volume) -> None:
    other = make_volume(volume.layout.root.parent / "other", [len(volume.samples[0].input_ids)], 1, run="r2")
    other.publish(0)
    volume.publish(1)
    other.path(0).rename(volume.path(0))
    assert look(volume).damaged == (0,)


def test_an_index_of_another_shard_does_not_count(volume: Volume) -> None:
    volume.publish(0, 3)
    volume.path(3).rename(volume.path(0).with_name(volume.path(3).name))
    state = look(volume)
    assert (indices(state), state.damaged) == ([0], ())


def test_temporary_files_do_not_count(volume: Volume) -> None:
    volume.publish(0)
    volume.path(0).rename(volume.path(0).with_name(f".{volume.path(0).name}.m.x.tmp"))
    assert look(volume) == ShardState(0, (), (), ended=False, stale=False, damaged=())


def lie_of_other_run(volume: Volume, done: list[Published]) -> None:
    volume.write_manifest(0, done, run="r2")


def lie_without_a_sample(volume: Volume, done: list[Published]) -> None:
    volume.write_manifest(0, done[:2])


def damage(volume: Volume, done: list[Published]) -> None:
    volume.write_manifest(0, done)
    os.truncate(volume.layout.manifest(0), 50)


@pytest.mark.parametrize("manifest", [lie_of_other_run, lie_without_a_sample, damage])
def test_a_manifest_that_does_not_hold_is_stale_and_the_files_count(
    volume: Volume, manifest: Callable[[Volume, list[Published]], None]
) -> None:
    done = volume.publish(0, 1, 2)
    manifest(volume, done)
    assert look(volume) == ShardState(0, tuple(done), (), ended=False, stale=True, damaged=())


def test_a_manifest_with_a_wrong_size_is_overruled_by_the_file(volume: Volume) -> None:
    done = volume.publish(0, 1, 2)
    lie = Published(1, 1, 17, "0" * 32)
    volume.write_manifest(0, [done[0], lie, done[2]])
    assert look(volume).done == tuple(done)


def test_a_sample_given_up_whose_file_stands_does_not_hide_one_that_is_missing(volume: Volume) -> None:
    volume.finish_shard(0, [SKIPPED])
    volume.publish(1)
    volume.path(0).unlink()
    state = look(volume)
    assert indices(state) == [1, 2]
    assert not state.ended


def test_the_whole_run_is_surveyed_in_order(volume: Volume) -> None:
    volume.finish_shard(1)
    assert [(state.shard, state.ended) for state in survey(volume.layout, volume.info)] == [(0, False), (1, True)]


def test_a_volume_that_cannot_be_read_is_a_named_error(volume: Volume) -> None:
    directory = volume.layout.shard_directory(0)
    directory.parent.mkdir(parents=True)
    directory.write_text("a plain file")
    with pytest.raises(VolumeUnusable, match="cannot be read"):
        look(volume)


def test_a_trusted_shard_is_left_out_while_nothing_came_or_went(volume: Volume) -> None:
    volume.finish_shard(0)
    volume.finish_shard(1)
    age(volume.layout.shard_directory(0))
    age(volume.layout.shard_directory(1))
    assert [s.shard for s in survey(volume.layout, volume.info, trusted={0, 1})] == []
    assert [s.shard for s in survey(volume.layout, volume.info, trusted={1})] == [0]
    volume.path(0).unlink()
    assert [s.shard for s in survey(volume.layout, volume.info, trusted={0, 1})] == [0]


def test_a_trusted_shard_without_its_manifest_or_its_files_is_looked_at(volume: Volume) -> None:
    volume.finish_shard(0)
    age(volume.layout.shard_directory(0))
    manifest = volume.layout.manifest(0)
    manifest.rename(manifest.with_name("aside"))
    assert not is_untouched(volume.layout, 0)
    manifest.with_name("aside").rename(manifest)
    assert is_untouched(volume.layout, 0)
    shutil.rmtree(volume.layout.shard_directory(0))
    assert not is_untouched(volume.layout, 0)


def test_times_that_are_equal_prove_nothing(volume: Volume) -> None:
    volume.finish_shard(0)
    at = volume.layout.manifest(0).stat().st_mtime_ns
    os.utime(volume.layout.shard_directory(0), ns=(at, at))
    assert not is_untouched(volume.layout, 0)


def age(directory: Path) -> None:
    """As if its files had come a second ago: here they come in the same tick of the file system's clock as the
    manifest does.
    """
    at = directory.stat().st_mtime_ns - 1_000_000_000
    os.utime(directory, ns=(at, at))


def test_a_file_that_goes_while_it_is_listed_hides_no_other(volume: Volume, monkeypatch: pytest.MonkeyPatch) -> None:
    """As another worker's temporary file does, or what a network file system still lists."""
    volume.publish(0, 2)
    gone = volume.path(0).with_name(".gone.tmp")
    gone.touch()
    with os.scandir(gone.parent) as entries:
        listed = list(entries)
    gone.unlink()
    monkeypatch.setattr(os, "scandir", lambda _: nullcontext(listed))
    assert indices(look(volume)) == [0, 2]
