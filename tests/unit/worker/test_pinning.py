from __future__ import annotations

from pathlib import Path

import pytest

from hsqueue.contracts.errors import DumpDirectoryNotShared, UsageError, WorkerAlreadyPinned
from hsworker.pinning import Pin, lock_dump_directory


def pin(directory: Path, name: str = "gpu0") -> Pin:
    return Pin("http://127.0.0.1:30000", directory, name)


@pytest.mark.parametrize("name", ["gpu0", "a", "node-1.gpu_0", "A" * 64])
def test_a_plain_name_is_usable(tmp_path: Path, name: str) -> None:
    assert name in pin(tmp_path, name).owner


@pytest.mark.parametrize("name", ["", " ", "a b", "../x", "-x", ".x", "a/b", "a@b", "ä", "a" * 65, "a\n"])
def test_a_name_that_could_be_misread_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="not usable"):
        pin(tmp_path, name)


def test_an_unknown_layout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="layout"):
        Pin("http://h:1", tmp_path, "gpu0", "newest")


def test_a_pin_reaches_the_processes_of_its_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Pin("http://h:1", tmp_path, "gpu0", "counter")
    for name, value in mine.to_environment().items():
        monkeypatch.setenv(name, value)
    assert Pin.from_environment() == mine
    monkeypatch.delenv("HSQ_ENGINE_URL")
    with pytest.raises(UsageError, match="HSQ_ENGINE_URL"):
        Pin.from_environment()


def test_an_owner_is_one_word_and_the_same_after_a_restart(tmp_path: Path) -> None:
    owner = pin(tmp_path / "with space").owner
    assert owner == pin(tmp_path / "with space").owner
    assert " " not in owner
    assert owner != pin(tmp_path / "other").owner


def test_one_worker_reads_a_directory(tmp_path: Path) -> None:
    first = lock_dump_directory(pin(tmp_path))
    with pytest.raises(WorkerAlreadyPinned, match=str(tmp_path)):
        lock_dump_directory(pin(tmp_path, "gpu1"))
    first.close()
    lock_dump_directory(pin(tmp_path)).close()


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DumpDirectoryNotShared, match="file"):
        lock_dump_directory(pin(tmp_path / "file"))
