from __future__ import annotations

import array
import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import xxhash
from safetensors import safe_open
from safetensors.torch import load_file

from hsqueue.contracts.errors import DumpMalformed, DumpMismatch, LeaseLost, VolumeUnusable
from hsqueue.store.publish import publish
from hsqueue.store.samplefile import read_sample_header
from tests.support.volume import Volume

Files = Callable[[], list[str]]


def granted() -> None:
    """The lease is held."""


def refused() -> None:
    raise LeaseLost("the lease is lost")


def same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Bit by bit, so that NaN equals itself."""
    return one.dtype == other.dtype and torch.equal(one.view(torch.uint8), other.view(torch.uint8))


def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hsqueue.store.publish.CHUNK_BYTES", 7)
    monkeypatch.setattr("hsqueue.store.publish._spare", [])


def test_safetensors_reads_the_dumps_tensors_and_the_loss_mask(volume: Volume) -> None:
    job = volume.publication(1)
    dump = load_file(job.source)
    publish(job, granted)
    found = load_file(job.final)
    mask = found.pop("loss_mask")
    assert found.keys() == dump.keys()
    assert all(same_bytes(found[name], dump[name]) for name in dump)
    assert found["input_ids"].tolist() == volume.samples[1].input_ids.tolist()
    assert mask.dtype == torch.uint8
    assert bytes(mask.tolist()) == volume.samples[1].loss_mask


def test_a_dump_that_became_another_after_it_was_matched_is_not_published(volume: Volume) -> None:
    """Same header, same length, other rows: nothing but the copy's own token ids can tell."""
    job = volume.publication(1)
    other = array.array("q", volume.samples[1].input_ids)
    other[-1] += 1
    data = job.source.read_bytes()
    start = job.dump.size + job.dump.tensors["input_ids"].begin
    job.source.write_bytes(data[:start] + other.tobytes() + data[start + len(other) * 8 :])
    with pytest.raises(DumpMismatch, match="became another"):
        publish(job, granted)
    assert list(job.final.parent.iterdir()) == []


def test_a_dump_that_is_cut_while_it_is_copied_is_not_published(volume: Volume) -> None:
    job = volume.publication(1)
    os.truncate(job.source, job.dump.file_bytes - 1)
    with pytest.raises(DumpMismatch, match="cut"):
        publish(job, granted)
    assert list(job.final.parent.iterdir()) == []


def test_a_dump_is_copied_whole_by_reads_that_give_little(volume: Volume, monkeypatch: pytest.MonkeyPatch) -> None:
    read = os.preadv
    monkeypatch.setattr("os.preadv", lambda file, buffers, offset: read(file, [buffers[0][:5]], offset))
    job = volume.publication(1)
    publish(job, granted)
    header = read_sample_header(job.final)
    assert xxhash.xxh3_128_hexdigest(job.final.read_bytes()[header.file.size :]) == header.checksum
    assert load_file(job.final).keys() > load_file(job.source).keys()


def test_publishers_at_once_share_no_buffer(volume: Volume, monkeypatch: pytest.MonkeyPatch) -> None:
    small_chunks(monkeypatch)
    jobs = [volume.publication(sample.index) for sample in volume.samples]
    with ThreadPoolExecutor(len(jobs)) as pool:
        list(pool.map(lambda job: publish(job, granted), jobs))
    for job in jobs:
        assert same_bytes(load_file(job.final)["aux_hidden_states"], load_file(job.source)["aux_hidden_states"])


def test_the_metadata_say_whose_states_these_are(volume: Volume) -> None:
    job = volume.publication(1)
    publish(job, granted)
    with safe_open(job.final, "pt") as file:
        found = file.metadata()
    assert found["run"] == "r1"
    assert (found["index"], found["id"], found["num_tokens"]) == ("1", "id-1", "9")
    assert (found["layers"], found["norm"], found["dtype"]) == ("2,4,5", "post", "bfloat16")
    assert found["rid"] == job.meta.rid


def test_the_checksum_is_of_the_payload_and_the_digest_of_the_header(volume: Volume) -> None:
    job = volume.publication(1)
    published = publish(job, granted)
    data = job.final.read_bytes()
    header = read_sample_header(job.final)
    assert xxhash.xxh3_128_hexdigest(data[header.file.size :]) == header.checksum
    assert xxhash.xxh3_128_hexdigest(data[: header.file.size]) == published.digest
    assert (published.index, published.tokens, published.bytes) == (1, 9, len(data))
    assert header.published == published


def test_a_dump_larger_than_one_chunk_is_copied_whole(volume: Volume, monkeypatch: pytest.MonkeyPatch) -> None:
    small_chunks(monkeypatch)
    job = volume.publication(1)
    dump = load_file(job.source)
    publish(job, granted)
    assert same_bytes(load_file(job.final)["aux_hidden_states"], dump["aux_hidden_states"])
    header = read_sample_header(job.final)
    assert xxhash.xxh3_128_hexdigest(job.final.read_bytes()[header.file.size :]) == header.checksum


def test_nothing_is_left_beside_the_published_file(volume: Volume, files: Files) -> None:
    volume.publish(0, 1)
    assert files() == ["000000000000.safetensors", "000000000001.safetensors"]


def test_a_lost_lease_leaves_nothing(volume: Volume, files: Files) -> None:
    with pytest.raises(LeaseLost):
        publish(volume.publication(0), refused)
    assert files() == []


def test_the_lease_is_looked_at_after_the_bytes_are_on_disk(volume: Volume, files: Files) -> None:
    seen: list[list[str]] = []
    publish(volume.publication(0), lambda: seen.append(files()))
    assert len(seen) == 1
    assert [name.endswith(".tmp") for name in seen[0]] == [True]


def test_the_second_of_two_attempts_gets_the_firsts_file(volume: Volume, files: Files) -> None:
    first = publish(volume.publication(0), granted)
    before = volume.path(0).read_bytes()
    late = volume.publication(0)
    late = replace(late, meta=replace(late.meta, rid="hsq.r1.0.9.1"), mark="9.1")
    assert publish(late, granted) == first
    assert volume.path(0).read_bytes() == before
    assert files() == ["000000000000.safetensors"]


def test_a_damaged_file_under_the_name_is_no_result(volume: Volume, files: Files) -> None:
    volume.publish(0)
    os.truncate(volume.path(0), 100)
    with pytest.raises(DumpMalformed):
        publish(volume.publication(0), granted)
    assert files() == ["000000000000.safetensors"]


def test_a_winner_that_this_node_does_not_see_yet_is_the_volumes_matter(
    volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name is taken, by the server; absent, by what the node remembers."""

    def taken(source: Path, target: Path) -> None:
        raise FileExistsError(errno.EEXIST, "File exists", target)

    monkeypatch.setattr(os, "link", taken)
    with pytest.raises(VolumeUnusable, match="does not see it yet"):
        publish(volume.publication(0), lambda: None)


def test_another_samples_file_under_the_name_is_no_result(volume: Volume) -> None:
    volume.publish(2)
    volume.path(2).rename(volume.path(0))
    with pytest.raises(DumpMalformed):
        publish(volume.publication(0), granted)


def test_a_link_that_fails_after_it_worked_is_a_success(
    volume: Volume, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def link_and_fail(source: Path, target: Path) -> None:
        link(source, target)
        raise OSError(errno.EIO, "lost reply")

    monkeypatch.setattr(os, "link", link_and_fail)
    published = publish(volume.publication(0), granted)
    assert read_sample_header(volume.path(0)).published == published
    assert files() == ["000000000000.safetensors"]


def test_a_link_that_was_repeated_after_it_worked_is_a_success(volume: Volume, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def link_twice(source: Path, target: Path) -> None:
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", link_twice)
    published = publish(volume.publication(0), granted)
    assert read_sample_header(volume.path(0)).published == published


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EMLINK, errno.EPERM])
def test_a_link_that_fails_leaves_nothing(
    volume: Volume, files: Files, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(source: Path, target: Path) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", fail)
    with pytest.raises(VolumeUnusable, match=os.strerror(number)):
        publish(volume.publication(0), granted)
    assert files() == []


def test_writes_that_come_short_are_continued(volume: Volume, monkeypatch: pytest.MonkeyPatch) -> None:
    """As POSIX allows, and as a volume does that fills up or is interrupted."""
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data)[:5]))
    job = volume.publication(0)
    dump = load_file(job.source)
    publish(job, granted)
    assert same_bytes(load_file(job.final)["last_hidden_state"], dump["last_hidden_state"])


def test_a_header_whose_write_comes_short_is_not_published_torn(
    volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: pwrite(fd, bytes(data)[:64], offset))
    job = volume.publication(0)
    published = publish(job, granted)
    assert read_sample_header(job.final).published == published


def test_the_file_is_synced_before_it_gets_its_name(volume: Volume, monkeypatch: pytest.MonkeyPatch) -> None:
    volume.publish(1)  # makes the directory, which is synced too
    events: list[str] = []
    fsync, link = os.fsync, os.link
    monkeypatch.setattr(os, "fsync", lambda fd: (events.append("fsync"), fsync(fd))[1])
    monkeypatch.setattr(os, "link", lambda a, b: (events.append("link"), link(a, b))[1])
    volume.publish(0)
    assert events == ["fsync", "link"]


def test_a_plain_file_in_place_of_the_directory_is_a_named_error(volume: Volume) -> None:
    volume.layout.samples.parent.mkdir(exist_ok=True)
    volume.layout.samples.write_text("")
    with pytest.raises(VolumeUnusable, match="samples"):
        publish(volume.publication(0), granted)
