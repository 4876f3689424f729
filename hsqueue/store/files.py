"""Durable, write-once files: what stands under its final name is complete and survives a power cut."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from hsqueue.contracts.errors import VolumeUnusable
from hsqueue.store.layout import TEMPORARY_SUFFIX

_FULL = (errno.ENOSPC, errno.EDQUOT)
_UNWRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)


def volume_error(error: OSError, path: Path) -> VolumeUnusable:
    """What a failed write to the volume means, in words."""
    if error.errno in _FULL:
        return VolumeUnusable(
            f"{path.parent} is full", do="Free space or raise the quota; workers go on by themselves."
        )
    if error.errno in _UNWRITABLE:
        return VolumeUnusable(
            f"{path.parent} cannot be written ({error.strerror})",
            do="Mount the volume read-write for this user; workers go on by themselves.",
        )
    return VolumeUnusable(
        f"writing {path} failed ({error.strerror or error})",
        do="Check the mount of the shared volume; workers go on by themselves.",
    )


def unreadable(error: OSError, path: Path) -> VolumeUnusable:
    """What a failed look at the volume means, in words."""
    return VolumeUnusable(
        f"{path} cannot be read ({error.strerror or error})",
        do="Check the mount of the shared volume; workers go on by themselves.",
    )


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raises VolumeUnusable for an OSError of what is done meanwhile."""
    try:
        yield
    except OSError as error:
        raise unreadable(error, path) from error


def make_directory(path: Path) -> None:
    """Makes `path` and its parents, so that they survive a power cut. Raises VolumeUnusable."""
    with reading(path):
        if path.is_dir():
            return
    make_directory(path.parent)
    try:
        # Not by exist_ok, which looks again: a network file system may say for a while that nothing is there.
        with contextlib.suppress(FileExistsError):
            path.mkdir()
        fsync_directory(path.parent)
    except OSError as error:
        raise volume_error(error, path) from error


def require_run(run_json: Path) -> None:
    """Raises VolumeUnusable where the run is not there: an empty mount point must not be taken for an empty run."""
    with reading(run_json):
        there = run_json.exists()
    if not there:
        raise VolumeUnusable(f"{run_json.parent} holds no run.json", do="Mount the shared volume there.")


def require_volume(root: Path, volumes: Sequence[Path]) -> None:
    """Raises VolumeUnusable where the run's directory `root`, links followed, lies in none of `volumes`, if any."""
    real = root.resolve()
    if volumes and not any(real.is_relative_to(volume.resolve()) for volume in volumes):
        raise VolumeUnusable(
            f"{root} lies outside the volumes that this worker may write to",
            expected=":".join(map(str, volumes)),
            do="Move the run there, or add its directory to HSQ_VOLUMES.",
        )


def require_inside(root: Path, *paths: Path) -> None:
    """Raises VolumeUnusable where one of `paths`, below the run `root`, leads elsewhere by a link on its way."""
    for path in paths:
        with reading(path):
            link = link_on_the_way(root, path)
        if link is not None:
            raise VolumeUnusable(
                f"{link} is a link, and what lies behind it is not the run's",
                do="Put a directory in its place; to keep a run elsewhere, link the run's own directory.",
            )


def link_on_the_way(root: Path, path: Path) -> Path | None:
    """The first symbolic link between `root` and `path`, `path` itself included, or None."""
    place = root
    for part in path.relative_to(root).parts:
        place = place / part
        if place.is_symlink():
            return place
    return None


def discard(temporary: Path) -> None:
    """Removes a temporary file where that can be done; on a volume gone read-only the first error counts, not this."""
    with contextlib.suppress(OSError):
        temporary.unlink(missing_ok=True)


def temporary_name(final: Path, mark: str = "") -> Path:
    """A name beside `final` that no other process uses; hidden, so that listings of samples pass it over."""
    return final.with_name(f".{final.name}.{mark or 'x'}.{uuid.uuid4().hex[:12]}{TEMPORARY_SUFFIX}")


def temporaries_of(final: Path) -> list[Path]:
    """What dead processes left while they wrote `final`."""
    return list(final.parent.glob(f".{final.name}.*{TEMPORARY_SUFFIX}"))


def commit_link(temporary: Path, final: Path) -> bool:
    """Gives `temporary`, already on disk, its final name. True where this call did it, False where another won.

    On NFS an error from ``link`` can hide a success: then the temporary file has two names.
    The temporary name is removed in every case.
    """
    try:
        os.link(temporary, final)
        won = True
    except FileExistsError:
        won = temporary.stat().st_nlink == 2
    except OSError:
        won = temporary.stat().st_nlink == 2
        if not won:
            raise
    finally:
        discard(temporary)
    return won


def fsync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_once(final: Path, data: bytes) -> bool:
    """Writes a small file under a name that did not exist. True where this call wrote it.

    Raises VolumeUnusable. The directory is synced as well.
    """
    make_directory(final.parent)
    temporary = temporary_name(final)
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        won = commit_link(temporary, final)
        fsync_directory(final.parent)
    except OSError as error:
        discard(temporary)
        raise volume_error(error, final) from error
    return won
