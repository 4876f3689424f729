"""Only plain files of this user, in a directory that is his alone, are dumps."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hscapture.ridlayout import make_dump_directory
from hsqueue.contracts.errors import DumpDirectoryNotShared, DumpMalformed
from hsqueue.contracts.rid import RequestId
from hsworker.dumps import read_dump, require_private, sweep
from hsworker.pinning import Pin, lock_dump_directory
from tests.support.volume import make_sample, write_dump

SAMPLE = make_sample(3, 7)
RID = RequestId("r1", 3, (1 << 32) + 1, 0)
NOBODY = 65534
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


def as_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def as_linked_directory(path: Path) -> None:
    elsewhere = path.parent.with_name("elsewhere")
    shutil.move(path.parent, elsewhere)
    path.parent.symlink_to(elsewhere)


def as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def as_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def as_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


@pytest.mark.timeout(30)
@pytest.mark.parametrize("change", [as_link, as_linked_directory, as_pipe, as_directory, as_device])
def test_what_is_no_plain_file_is_no_dump_and_is_not_waited_for(tmp_path: Path, change: Callable[[Path], None]) -> None:
    path = write_dump(tmp_path, RID, SAMPLE)
    assert read_dump(path, 7).meta.num_tokens == 7
    change(path)
    with pytest.raises(DumpMalformed):
        read_dump(path, 7)


@AS_ROOT
def test_a_dump_of_another_user_is_not_trusted(tmp_path: Path) -> None:
    path = write_dump(tmp_path, RID, SAMPLE)
    os.chown(path, NOBODY, NOBODY)
    with pytest.raises(DumpMalformed, match="of this user"):
        read_dump(path, 7)


def test_sweeping_removes_a_link_or_leaves_it_and_never_what_it_leads_to(tmp_path: Path) -> None:
    dumps, precious = tmp_path / "dumps", tmp_path / "precious"
    dumps.mkdir()
    precious.mkdir()
    (precious / "file").write_text("x")
    (dumps / RID.directory).symlink_to(precious)
    sweep(dumps, set(), 0.0)
    assert (precious / "file").exists()


@pytest.fixture(params=["worker", "engine"])
def require(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    """Both sides look; each under the error that it shows."""
    return require_private if request.param == "worker" else make_dump_directory


def refused(require: Callable[[Path], None], directory: Path) -> str:
    with pytest.raises((DumpDirectoryNotShared, PermissionError)) as caught:
        require(directory)
    return str(caught.value)


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777, 0o722])
def test_a_directory_that_others_may_write_to_is_refused(
    tmp_path: Path, require: Callable[[Path], None], mode: int
) -> None:
    tmp_path.chmod(mode)
    assert "chmod 700" in refused(require, tmp_path)


@AS_ROOT
def test_a_directory_of_another_user_is_refused(tmp_path: Path, require: Callable[[Path], None]) -> None:
    os.chown(tmp_path, NOBODY, NOBODY)
    assert "another user" in refused(require, tmp_path)


def test_an_engine_makes_its_directory_for_its_user_alone(tmp_path: Path, require: Callable[[Path], None]) -> None:
    make_dump_directory(tmp_path / "made")
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o700
    require(tmp_path / "made")


def test_a_worker_is_not_pinned_to_a_directory_that_others_may_write_to(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(DumpDirectoryNotShared, match="other users may write"):
        lock_dump_directory(Pin("http://h:1", tmp_path, "gpu0"))
