from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from hsqueue.contracts.meters import STAGES
from hsqueue.contracts.sample import Ending, GivenUp, Published
from hsqueue.contracts.work import Span, Work
from hsqueue.report.tally import PARTS, Tally, add_published, tally
from hsqueue.store.manifest import make_manifest, write_manifest
from hsqueue.store.survey import survey
from tests.support.volume import make_volume

LENGTHS = (5, 9, 12, 3, 7, 7, 2)
SKIPPED = GivenUp(1, Ending.SKIPPED, 1, "SampleTooLong", "too long")
FAILED = GivenUp(5, Ending.FAILED, 5, "DumpMissing", "no dump")
DID = Work().opened("gpu0", 10.0).closed(20.0, 2, 12, dict.fromkeys(STAGES, 2.0), {"DumpMissing": 3}, True)


def test_manifests_add_up(tmp_path: Path) -> None:
    volume = make_volume(tmp_path / "run", LENGTHS, 3)
    first = volume.write_manifest(0, volume.publish(0, 2), [SKIPPED], work=DID)
    second = volume.write_manifest(
        1, volume.publish(3, 4), [FAILED], work=DID.opened("gpu1", 30.0).opened("gpu0", 50.0)
    )
    found = tally(volume.layout, volume.info)
    assert found.lengths == Counter([5, 12, 3, 7])
    assert found.file_bytes == first.total_bytes + second.total_bytes
    assert found.given_up == {("skipped", "SampleTooLong"): 1, ("failed", "DumpMissing"): 1}
    assert found.examples["failed", "DumpMissing"].index == 5
    assert found.seconds == dict.fromkeys(STAGES, 4.0)
    assert (found.retries["DumpMissing"], found.engine_downs, found.leases, found.lost) == (6, 2, 4, 1)
    assert (found.ended, found.open, found.unsound, len(found.spans)) == (2, [2], [], 4)


def test_files_of_shards_without_a_manifest_count_where_nobody_else_knows_them(tmp_path: Path) -> None:
    volume = make_volume(tmp_path / "run", LENGTHS, 3)
    volume.finish_shard(0)
    volume.publish(4)
    found = tally(volume.layout, volume.info)
    assert found.done == 3
    add_published(found, volume.layout, volume.info)
    assert (found.done, found.tokens) == (4, 5 + 9 + 12 + 7)
    assert found.done == sum(len(state.done) for state in survey(volume.layout, volume.info))


@pytest.mark.parametrize(
    "wrong",
    [
        {"shard": 1}, {"run": "r2"}, {"done": (Published(0, 5, 1, ""),)},
        {"done": (Published(0, 5, 1, ""), Published(1, -9, 1, ""), Published(2, 3, 1, ""))},
        {"done": (Published(0, 5, 1, ""), Published(1, True, 1, ""), Published(2, 3, 1, ""))},
        {"done": (Published(0, 5, 1, ""), Published(1, 1, "9", ""), Published(2, 3, 1, ""))},  # type: ignore[arg-type]
        {"done": (), "given_up": (SKIPPED, FAILED, replace(FAILED, ending="lost"))},  # type: ignore[arg-type]
        {"done": (), "given_up": (SKIPPED, FAILED, replace(FAILED, error=None))},  # type: ignore[arg-type]
        {"done": (Published(0, 5, 1, ""), Published(1, 10**400, 1, ""), Published(2, 3, 1, ""))},
        {"done": (Published(0, 5, 1, ""),), "given_up": (SKIPPED, replace(FAILED, index=10**400))},
        {"work": Work(leases=-1)}, {"work": Work(spans=(Span("w", 1.0, 1e300),))},
    ],
)  # fmt: skip
def test_a_manifest_that_does_not_hold_counts_for_nothing(tmp_path: Path, wrong: dict[str, object]) -> None:
    volume = make_volume(tmp_path / "run", LENGTHS, 3)
    done = [Published(index, 5, 100, "d") for index in range(3)]
    manifest = replace(make_manifest("r1", 0, 1, "w", done, ()), **wrong)  # type: ignore[arg-type]
    path = volume.layout.manifest(0)
    path.parent.mkdir(parents=True)
    path.write_bytes(manifest.to_json())
    found = tally(volume.layout, volume.info)
    assert found == replace(Tally(), unsound=[0], open=[1, 2])


@pytest.mark.parametrize("text", [b"", b"{}", b"[" * 5000, b"\xff", b'{"contract":1}'])
def test_a_manifest_that_is_none_counts_for_nothing(tmp_path: Path, text: bytes) -> None:
    volume = make_volume(tmp_path / "run", LENGTHS, 3)
    volume.layout.manifest(2).parent.mkdir(parents=True)
    volume.layout.manifest(2).write_bytes(text)
    assert tally(volume.layout, volume.info).unsound == [2]


def test_parts_of_a_large_run_lose_no_shard(tmp_path: Path) -> None:
    shards = 3 * PARTS + 5
    volume = make_volume(tmp_path / "run", [4] * shards, 1)
    for shard in range(0, shards, 2):
        manifest = make_manifest("r1", shard, 1, "w", [Published(shard, 4, 100 + shard, "d")], ())
        assert write_manifest(volume.layout, manifest)
    found = tally(volume.layout, volume.info)
    assert (found.ended, found.open) == (-(-shards // 2), list(range(1, shards, 2)))
    assert found.file_bytes == sum(100 + shard for shard in range(0, shards, 2))
