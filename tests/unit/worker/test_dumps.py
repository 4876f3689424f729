from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from hsqueue.contracts.complaint import COMPLAINT_NAME, Complaint
from hsqueue.contracts.errors import DumpMalformed, DumpMissing
from hsqueue.contracts.rid import RequestId
from hsworker.dumps import RidDumps, read_dump, sweep
from tests.support.volume import dump_file_bytes, make_meta, make_sample, write_dump

SAMPLE = make_sample(3, 7)
RID = RequestId("r1", 3, (1 << 32) + 1, 0)
OTHER = RequestId("r1", 4, (1 << 32) + 1, 0)


@pytest.fixture
def dumps(tmp_path: Path) -> RidDumps:
    return RidDumps(tmp_path)


# --- waiting --------------------------------------------------------------------------------------------------


def test_a_dump_that_is_there_is_taken_at_once(dumps: RidDumps, tmp_path: Path) -> None:
    path = write_dump(tmp_path, RID, SAMPLE)
    found = dumps.wait(RID, SAMPLE, 0.0)
    assert (found.path, found.directory) == (path, path.parent)
    assert found.meta == make_meta(str(RID), 7)
    assert found.ids == SAMPLE.input_ids.tobytes()
    assert found.file.file_bytes == path.stat().st_size


def test_a_dump_that_appears_by_a_rename_is_awaited(dumps: RidDumps, tmp_path: Path) -> None:
    hidden = write_dump(tmp_path / "staging", RID, SAMPLE).parent
    threading.Timer(0.1, lambda: hidden.rename(tmp_path / RID.directory)).start()
    assert dumps.wait(RID, SAMPLE, 20.0).meta.rid == str(RID)


def test_a_dump_that_does_not_appear_is_missing_in_bounded_time(dumps: RidDumps, tmp_path: Path) -> None:
    write_dump(tmp_path, OTHER, SAMPLE)
    (tmp_path / RID.directory).mkdir()
    began = time.monotonic()
    with pytest.raises(DumpMissing) as caught:
        dumps.wait(RID, SAMPLE, 0.05)
    assert time.monotonic() - began < 5
    assert caught.value.sample == RID


@pytest.mark.parametrize(
    ("about", "age", "said"),
    [(RID, 3600, "complaint: disk full"), (OTHER, 5, f"complaint about {OTHER}: disk full"), (OTHER, 3600, None)],
    ids=["this", "another-now", "another-long-ago"],
)
def test_a_missing_dump_says_what_the_engine_complained_of(
    dumps: RidDumps, tmp_path: Path, about: RequestId, age: float, said: str | None
) -> None:
    (tmp_path / COMPLAINT_NAME).write_text(Complaint(str(about), time.time() - age, "disk full").to_json())
    with pytest.raises(DumpMissing) as caught:
        dumps.wait(RID, SAMPLE, 0.0)
    assert (caught.value.found is None) if said is None else str(caught.value.found).endswith(said)


def test_a_complaint_that_cannot_be_read_is_none(dumps: RidDumps, tmp_path: Path) -> None:
    (tmp_path / COMPLAINT_NAME).write_bytes(b"\xff{")
    with pytest.raises(DumpMissing) as caught:
        dumps.wait(RID, SAMPLE, 0.0)
    assert caught.value.found is None


@pytest.mark.parametrize("size", [0, 7, 8, 200, -8])
def test_a_torn_dump_is_malformed(dumps: RidDumps, tmp_path: Path, size: int) -> None:
    path = write_dump(tmp_path, RID, SAMPLE)
    os.truncate(path, size if size >= 0 else path.stat().st_size + size)
    with pytest.raises(DumpMalformed):
        dumps.wait(RID, SAMPLE, 0.0)


def test_a_dump_that_is_too_long_is_malformed(dumps: RidDumps, tmp_path: Path) -> None:
    path = write_dump(tmp_path, RID, SAMPLE)
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(DumpMalformed, match="wrong length"):
        dumps.wait(RID, SAMPLE, 0.0)


def test_a_file_without_token_ids_is_malformed(tmp_path: Path) -> None:
    path = tmp_path / "hidden.safetensors"
    path.write_bytes(dump_file_bytes("x", SAMPLE).replace(b'"input_ids"', b'"input_idz"'))
    with pytest.raises(DumpMalformed, match="without token ids"):
        read_dump(path, 5)


def test_forgetting_removes_the_dump_of_the_request_and_no_other(dumps: RidDumps, tmp_path: Path) -> None:
    write_dump(tmp_path, RID, SAMPLE)
    write_dump(tmp_path, OTHER, SAMPLE)
    for orphaned in (False, True):
        dumps.forget(RID, orphaned=orphaned)
        assert [path.name for path in tmp_path.iterdir()] == [OTHER.directory]


# --- sweeping -------------------------------------------------------------------------------------------------


def aged(directory: Path, name: str, seconds: float) -> Path:
    path = directory / name
    path.mkdir()
    (path / "hidden.safetensors").write_bytes(b"x")
    os.utime(path, (time.time() - seconds,) * 2)
    return path


def test_old_dumps_of_ours_are_swept(tmp_path: Path) -> None:
    aged(tmp_path, RID.directory, 1000)
    aged(tmp_path, OTHER.directory, 1000)
    assert sweep(tmp_path, set(), 600.0) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_young_dump_may_still_be_awaited(tmp_path: Path) -> None:
    kept = aged(tmp_path, RID.directory, 500)
    assert sweep(tmp_path, set(), 600.0) == 0
    assert kept.exists()


def test_a_dump_of_a_living_lease_is_left(tmp_path: Path) -> None:
    kept = aged(tmp_path, RID.directory, 1000)
    assert sweep(tmp_path, {RID.fence}, 600.0) == 0
    assert kept.exists()


@pytest.mark.parametrize(
    "name",
    [
        "req_17", "req_", "req_someone-elses", "hsq.r1.3.1.0", ".hsqueue", "engine.json", "req_hsq.r1.3.1",
        "req_req_hsq.r1.3.1.0", "req_hsq.r1.03.1.0", "req_hsq.r1.3.1.0.tmp", "xreq_hsq.r1.3.1.0",
    ],
)  # fmt: skip
def test_what_is_not_a_dump_of_ours_is_never_removed(tmp_path: Path, name: str) -> None:
    kept = aged(tmp_path, name, 1e6)
    assert sweep(tmp_path, set(), 0.0) == 0
    assert kept.exists()
