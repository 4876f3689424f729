"""A volume without space: on a small file system of its own where this user may mount one, and by a limit."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hsqueue.contracts.errors import VolumeUnusable
from hsqueue.store.files import write_once
from hsqueue.store.publish import publish
from tests.support.volume import Volume, make_volume

TOKENS = 4000
"""A file of about 300 KB."""


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A file system of 160 KB."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=160k", "tmpfs", place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this user may not mount")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Writes beyond `size` bytes of a file fail."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def leftovers(volume: Volume) -> list[Path]:
    return [path for path in volume.layout.samples.rglob("*") if not path.is_dir()]


def test_a_full_volume_is_named_and_gets_its_space_back(full: Path, tmp_path: Path) -> None:
    volume = make_volume(full / "run", (5, TOKENS), 2)
    dumps = make_volume(tmp_path / "elsewhere" / "run", (5, TOKENS), 2)
    small, large = (dumps.publication(index, final=volume.path(index)) for index in (0, 1))
    with pytest.raises(VolumeUnusable, match=r"is full.*Free space"):
        publish(large, lambda: None)
    assert leftovers(volume) == []
    assert publish(small, lambda: None).tokens == 5


def test_a_file_that_may_not_grow_is_a_named_error(tmp_path: Path) -> None:
    volume = make_volume(tmp_path / "run", (TOKENS,), 1)
    job = volume.publication(0)
    with largest_file(100_000), pytest.raises(VolumeUnusable, match="File too large"):
        publish(job, lambda: None)
    assert leftovers(volume) == []
    assert publish(job, lambda: None).tokens == TOKENS


def test_a_small_file_on_a_full_volume_leaves_nothing(full: Path) -> None:
    with (full / "filler").open("wb") as filler, pytest.raises(OSError, match="No space left"):
        filler.write(bytes(1 << 20))
    with pytest.raises(VolumeUnusable, match="is full"):
        write_once(full / "manifest.json", bytes(50_000))
    assert [path.name for path in full.iterdir()] == ["filler"]
