from __future__ import annotations

from pathlib import Path

import pytest

from hsqueue.doctor.dumps import check_dump_directory, check_file_system, check_longest, check_room, file_system

GIB = 1 << 30
MOUNTS = """\
overlay / overlay rw 0 0
tmpfs /dev tmpfs rw 0 0
shm /dev/shm tmpfs rw 0 0
nfs:/x /data/with\\040space nfs4 rw 0 0
disk /mnt ext4 rw 0 0
over /mnt tmpfs rw 0 0
odd
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/dev/shm/hs0", "tmpfs"), ("/dev/shmoo", "tmpfs"), ("/home/x", "overlay"), ("/data/with space/a", "nfs4"),
        ("/data/with", "overlay"), ("/mnt/a", "tmpfs"),
    ],
)  # fmt: skip
def test_the_innermost_and_last_mount_holds_a_path(path: str, kind: str) -> None:
    assert file_system(Path(path), MOUNTS) == kind


def test_dumps_belong_into_memory() -> None:
    assert check_file_system("tmpfs").verdict == "ok"
    assert "memory" in check_file_system("ext4").do


@pytest.mark.parametrize(
    ("total", "free", "verdict", "words"),
    [
        (32, 32, "ok", ""), (32, 7, "warn", "enlarge /dev/shm"), (12, 12, "warn", "HSQ_DUMP_LIMIT"),
        (16, 16, "ok", ""),
    ],
)  # fmt: skip
def test_the_directory_holds_what_the_worker_may_have_waiting(total: int, free: int, verdict: str, words: str) -> None:
    """With 8 GiB wanted; the engine takes half of the file system by itself."""
    found = check_room(total * GIB, free * GIB, 8 * GIB)
    assert found.verdict == verdict
    assert words in found.do


def test_the_longest_dump_fits() -> None:
    assert check_longest(16 * GIB, 8 * GIB).verdict == "ok"
    assert "HSQ_DUMP_LIMIT" in check_longest(16 * GIB, 9 * GIB).do


def test_a_directory_that_is_not_there_is_all_that_is_said(tmp_path: Path) -> None:
    (found,) = check_dump_directory(tmp_path / "none", GIB, None)
    assert (found.verdict, "HSQ_DUMP_DIR" in found.do) == ("bad", True)
    assert len(list(check_dump_directory(tmp_path, GIB, GIB))) == 4
