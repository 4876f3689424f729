from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hsqueue.contracts.errors import VolumeUnusable
from hsqueue.store.files import commit_link, make_directory, temporary_name, volume_error, write_once


def test_a_file_is_written_where_none_stood(tmp_path: Path) -> None:
    final = tmp_path / "a" / "b.json"
    assert write_once(final, b"first")
    assert final.read_bytes() == b"first"
    assert list(final.parent.iterdir()) == [final]


def test_a_file_that_stands_is_never_replaced(tmp_path: Path) -> None:
    final = tmp_path / "b.json"
    write_once(final, b"first")
    assert not write_once(final, b"second")
    assert final.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [final]


def test_of_many_writers_at_once_one_wins_and_its_bytes_stand(tmp_path: Path) -> None:
    final = tmp_path / "b.json"
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda k: write_once(final, b"%d" % k * 1000), range(24)))
    assert won.count(True) == 1
    assert final.read_bytes() == b"%d" % won.index(True) * 1000
    assert list(tmp_path.iterdir()) == [final]


def test_file_and_directory_are_synced_and_the_name_comes_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fsync, link = os.fsync, os.link

    def note_fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        events.append("directory" if path.is_dir() else "file")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "link", lambda a, b: (events.append("link"), link(a, b))[1])
    write_once(tmp_path / "b.json", b"x")
    assert events == ["file", "link", "directory"]


def test_a_link_with_a_lost_reply_counts_by_the_number_of_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def link_and_fail(source: Path, target: Path) -> None:
        link(source, target)
        raise OSError(errno.EIO, "lost reply")

    monkeypatch.setattr(os, "link", link_and_fail)
    temporary, final = tmp_path / ".t.tmp", tmp_path / "f"
    temporary.write_bytes(b"x")
    assert commit_link(temporary, final)
    assert list(tmp_path.iterdir()) == [final]


def test_a_link_that_was_sent_twice_is_a_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def link_twice(source: Path, target: Path) -> None:
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", link_twice)
    assert write_once(tmp_path / "f", b"x")
    assert (tmp_path / "f").read_bytes() == b"x"


def test_a_link_that_fails_takes_the_temporary_name_away(tmp_path: Path) -> None:
    temporary = tmp_path / ".t.tmp"
    temporary.write_bytes(b"x")
    with pytest.raises(FileNotFoundError):
        commit_link(temporary, tmp_path / "absent" / "f")
    assert list(tmp_path.iterdir()) == []


def test_temporary_names_are_hidden_and_never_the_same(tmp_path: Path) -> None:
    final = tmp_path / "000000000001.safetensors"
    names = {temporary_name(final, "7.0") for _ in range(100)}
    assert len(names) == 100
    assert all(n.parent == tmp_path and n.name.startswith(".") and n.name.endswith(".tmp") for n in names)


def test_a_directory_that_this_node_does_not_see_yet_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a network file system has it for a while, after another node has made the directory."""
    made = tmp_path / "000"
    made.mkdir()
    monkeypatch.setattr(Path, "is_dir", lambda path: path != made)
    make_directory(made)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "/volume/run is full"), (errno.EDQUOT, "/volume/run is full"),
        (errno.EROFS, "cannot be written"), (errno.EACCES, "cannot be written"), (errno.EIO, "writing .* failed"),
        (errno.ESTALE, "writing .* failed"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_the_volume_is_said_in_one_line(number: int, words: str) -> None:
    error = volume_error(OSError(number, os.strerror(number)), Path("/volume/run/x"))
    with pytest.raises(VolumeUnusable, match=words):
        raise error
    assert "\n" not in str(error)
    assert error.do


def test_a_directory_under_a_plain_file_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(VolumeUnusable):
        make_directory(tmp_path / "file" / "below")
