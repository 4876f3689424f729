from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import pytest

from hsqueue.contracts.errors import RunDamaged
from hsqueue.contracts.sample import Ending, GivenUp, Sample
from hsqueue.store.publish import publish
from hsqueue.store.samplefile import read_sample_header
from hsqueue.store.verify import Verification, verify
from tests.support.volume import Volume, dump_file_bytes, make_sample

SKIPPED = GivenUp(1, Ending.SKIPPED, 0, "SampleTooLong", "")


def check(volume: Volume, *, deep: bool = False) -> Verification:
    return verify(volume.layout, volume.info, deep=deep)


def wrong(found: Verification) -> list[tuple[int | None, str]]:
    return [(finding.index, finding.repair) for finding in found.findings]


@pytest.fixture
def finished(volume: Volume) -> Volume:
    volume.finish_shard(0)
    volume.finish_shard(1)
    return volume


def overwrite(volume: Volume, index: int, place: int, data: bytes) -> None:
    with volume.path(index).open("r+b") as file:
        file.seek(place, os.SEEK_SET if place >= 0 else os.SEEK_END)
        file.write(data)


def payload(volume: Volume, index: int, tensor: str) -> int:
    header = read_sample_header(volume.path(index))
    return header.file.size + header.file.tensors[tensor].begin


@pytest.mark.parametrize("deep", [False, True])
def test_a_finished_run_is_clean(finished: Volume, deep: bool) -> None:
    found = check(finished, deep=deep)
    assert found.clean
    assert (found.good, found.given_up, found.missing) == (6, 0, 0)
    assert found.tokens == finished.info.tokens
    assert found.bytes == sum(finished.path(index).stat().st_size for index in range(6))


def test_a_run_in_progress_is_clean_and_incomplete(volume: Volume) -> None:
    volume.finish_shard(0, [SKIPPED])
    volume.publish(4)
    volume.path(4).with_name(".000000000005.safetensors.m.x.tmp").write_text("in progress")
    found = check(volume, deep=True)
    assert found.clean
    assert (found.good, found.given_up, found.missing) == (3, 1, 2)


def test_progress_is_told_of_every_sample(finished: Volume) -> None:
    told: list[int] = []
    verify(finished.layout, finished.info, deep=False, progress=told.append)
    assert sum(told) == 6


# --- what a look at headers and lengths finds -------------------------------------------------------------


def test_every_flipped_bit_of_a_header_is_found_without_a_deep_look(finished: Volume) -> None:
    size = read_sample_header(finished.path(0)).file.size
    genuine = finished.path(0).read_bytes()
    for place in range(0, size, 3):
        overwrite(finished, 0, place, bytes([genuine[place] ^ 1 << place % 7]))
        assert wrong(check(finished)) == [(0, "sample")], f"byte {place} of the header"
        overwrite(finished, 0, place, genuine[place : place + 1])
    assert check(finished).clean


@pytest.mark.parametrize("size", [0, 5, 200, -1])
def test_a_truncated_file_is_found(finished: Volume, size: int) -> None:
    whole = finished.path(1).stat().st_size
    os.truncate(finished.path(1), size if size >= 0 else whole + size)
    found = check(finished)
    assert wrong(found) == [(1, "sample")]
    assert (found.good, found.missing) == (5, 1)


def test_a_file_that_grew_is_found(finished: Volume) -> None:
    with finished.path(1).open("ab") as file:
        file.write(b"\0")
    assert wrong(check(finished)) == [(1, "sample")]


def test_a_missing_file_that_the_manifest_lists_is_found(finished: Volume) -> None:
    finished.path(5).unlink()
    found = check(finished)
    assert wrong(found) == [(5, "sample")]
    assert "missing" in found.findings[0].problem


@pytest.mark.parametrize("with_manifest", [True, False])
def test_swapped_files_of_one_size_are_found(volume: Volume, with_manifest: bool) -> None:
    done = volume.publish(0, 1, 2)
    if with_manifest:
        volume.write_manifest(0, done)
    aside = volume.path(0).with_name("aside")
    volume.path(0).rename(aside)
    volume.path(2).rename(volume.path(0))
    aside.rename(volume.path(2))
    found = check(volume)
    assert wrong(found) == [(0, "sample"), (2, "sample")]
    assert "holds sample 2 of run r1" in found.findings[0].problem


def test_a_file_under_another_index_is_found(volume: Volume) -> None:
    volume.publish(0)
    volume.path(0).rename(volume.path(1))
    assert wrong(check(volume)) == [(1, "sample")]


@pytest.mark.parametrize("name", ["000000000009.safetensors", "000000000003.safetensors", "notes.txt"])
def test_a_file_of_no_sample_of_the_shard_is_found(finished: Volume, name: str) -> None:
    finished.layout.shard_directory(0).joinpath(name).write_text("x")
    assert wrong(check(finished)) == [(None, "remove")]


# --- what a deep look finds -----------------------------------------------------------------------------


def test_a_flipped_bit_of_the_payload_is_found_by_a_deep_look(finished: Volume) -> None:
    place = payload(finished, 4, "last_hidden_state") + 11
    byte = finished.path(4).read_bytes()[place]
    overwrite(finished, 4, place, bytes([byte ^ 1]))
    found = check(finished, deep=True)
    assert wrong(found) == [(4, "sample")]
    assert "bytes have changed" in found.findings[0].problem


def test_a_tail_of_zeros_is_found_by_a_deep_look(finished: Volume) -> None:
    size = payload(finished, 4, "loss_mask") - payload(finished, 4, "last_hidden_state")
    overwrite(finished, 4, payload(finished, 4, "last_hidden_state"), bytes(size))
    assert wrong(check(finished, deep=True)) == [(4, "sample")]


@pytest.mark.parametrize("tensor", ["input_ids", "loss_mask"])
def test_a_changed_token_id_or_loss_mask_is_named(finished: Volume, tensor: str) -> None:
    place = payload(finished, 4, tensor)
    overwrite(finished, 4, place, bytes([finished.path(4).read_bytes()[place] ^ 1]))
    found = check(finished, deep=True)
    assert wrong(found) == [(4, "sample")]
    assert {"input_ids": "token ids", "loss_mask": "loss mask"}[tensor] in found.findings[0].problem


@pytest.mark.parametrize("part", ["input_ids", "loss_mask"])
def test_states_of_another_prompt_of_the_same_length_are_found(volume: Volume, part: str) -> None:
    """A file whose own checksum and digest are right, published for a prompt that the plan does not hold."""
    mine = volume.samples[0]
    other = make_sample(77, mine.tokens)
    sample = Sample(0, mine.id, other.input_ids if part == "input_ids" else mine.input_ids, mine.loss_mask)
    job = volume.publication(0)
    job.source.write_bytes(dump_file_bytes(job.meta.rid, sample))
    mask = mine.loss_mask if part == "input_ids" else bytes(1 - b for b in mine.loss_mask)
    done = [publish(replace(job, ids=sample.input_ids.tobytes(), loss_mask=mask), lambda: None), *volume.publish(1, 2)]
    volume.write_manifest(0, done)
    assert check(volume).clean
    assert wrong(check(volume, deep=True)) == [(0, "sample")]


# --- manifests ------------------------------------------------------------------------------------------


def damaged(volume: Volume) -> None:
    os.truncate(volume.layout.manifest(0), 30)


def of_another_run(volume: Volume) -> None:
    path = volume.layout.manifest(0)
    path.write_text(path.read_text().replace('"run":"r1"', '"run":"r2"'))


def of_another_shard(volume: Volume) -> None:
    volume.layout.manifest(1).replace(volume.layout.manifest(0))
    volume.layout.manifest(1).write_text("")
    volume.layout.manifest(1).unlink()


@pytest.mark.parametrize("lie", [damaged, of_another_run, of_another_shard])
def test_a_manifest_that_is_not_the_shards_is_found_and_its_files_are_right(
    finished: Volume, lie: Callable[[Volume], None]
) -> None:
    lie(finished)
    found = check(finished)
    assert wrong(found) == [(None, "manifest")]
    assert (found.good, found.missing) == (6, 0)


def test_a_manifest_without_one_of_the_samples_is_found(volume: Volume) -> None:
    done = volume.publish(0, 1, 2)
    volume.write_manifest(0, done[:2])
    assert wrong(check(volume)) == [(None, "manifest")]


def test_a_manifest_with_a_wrong_digest_is_found(volume: Volume) -> None:
    done = volume.publish(0, 1, 2)
    volume.write_manifest(0, [done[0], replace(done[1], digest="0" * 32), done[2]])
    found = check(volume)
    assert [finding.index for finding in found.findings] == [1]
    assert "digest" in found.findings[0].problem


@pytest.mark.parametrize("change", [{"tokens": 1}, {"bytes": 1}])
def test_a_manifest_with_a_wrong_count_is_found(volume: Volume, change: dict[str, int]) -> None:
    done = volume.publish(0, 1, 2)
    volume.write_manifest(0, [done[0], replace(done[1], **change), done[2]])
    assert check(volume).findings


def test_a_sample_given_up_whose_file_stands_is_found(volume: Volume) -> None:
    volume.finish_shard(0, [SKIPPED])
    volume.publish(1)
    found = check(volume)
    assert wrong(found) == [(1, "manifest")]
    assert (found.good, found.given_up, found.missing) == (3, 0, 3)


def test_a_plan_that_cannot_be_read_is_a_named_error(finished: Volume) -> None:
    finished.layout.plan_shard(1).unlink()
    with pytest.raises(RunDamaged, match=r"shard-000001\.parquet"):
        check(finished)
