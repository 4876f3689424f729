"""The shared volume: takes files, fsync, link and rename, is fast enough, and has room for the run."""

from __future__ import annotations

import os
import shutil
import statistics
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from hsqueue.contracts.errors import VolumeUnusable
from hsqueue.doctor.check import Check
from hsqueue.store.files import commit_link, fsync_directory, volume_error
from hsqueue.wording import readable_bytes

PROBE_BYTES = 16 << 20
SLOW_BYTES = 100e6
"""Bytes a second of one writer; one engine makes several times as much."""
SYNCS = 5
SLOW_SYNC = 0.2
"""Seconds to sync a small file; each sample is synced."""
LOW = 50 << 30
"""Bytes that should be free where no run is named."""


def check_volume(directory: Path, needed: int | None) -> Iterator[Check]:
    """needed: bytes that the run has still to write, None where no run is named."""
    mark = directory / f".hsqueue-doctor-{uuid.uuid4().hex[:8]}"
    paths = [mark.with_suffix(end) for end in (".tmp", ".a", ".b", ".c")]
    temporary, target, renamed, small = paths
    try:
        if not directory.is_dir():
            do = "Mount the shared volume, or make the directory."
            yield Check.of("volume", VolumeUnusable(f"{directory} is no directory", do=do))
            return
        began = time.monotonic()
        _write(temporary, os.urandom(PROBE_BYTES))
        speed = PROBE_BYTES / (time.monotonic() - began)
        linked = commit_link(temporary, target)
        target.rename(renamed)
        fsync_directory(directory)
        kept = renamed.exists() and not target.exists()
        sync = statistics.median(_seconds_to_write(small) for _ in range(SYNCS))
        free = shutil.disk_usage(directory).free
    except OSError as error:
        yield Check.of("volume", volume_error(error, target))
        return
    finally:
        for path in paths:
            if os.access(directory, os.W_OK):
                path.unlink(missing_ok=True)
    yield Check.judge(
        "volume", f"{directory} takes files, fsync, link and rename", None if linked and kept else "bad",
        "Use a file system with hard links and an atomic rename, such as NFS, Lustre, GPFS, CephFS or a local one.",
    )  # fmt: skip
    yield check_speed(speed, sync)
    yield check_free(free, needed)


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _seconds_to_write(path: Path) -> float:
    path.unlink(missing_ok=True)
    began = time.monotonic()
    _write(path, b"x")
    return time.monotonic() - began


def check_speed(speed: float, sync: float) -> Check:
    """speed: bytes a second of one writer. sync: seconds to write and sync a small file."""
    slow = speed < SLOW_BYTES or sync > SLOW_SYNC
    return Check.judge(
        "volume", f"one writer: {speed / 1e6:,.0f} MB/s with fsync, {1000 * sync:,.1f} ms to sync a small file",
        "warn" if slow else None,
        "An engine makes hundreds of MB/s of states. See what else writes there; raise HSQ_PUBLISHERS, which helps "
        "where one writer is slow and many are not.",
    )  # fmt: skip


def check_free(free: int, needed: int | None) -> Check:
    if needed is None:
        return Check.judge(
            "volume", f"{readable_bytes(free)} free", "warn" if free < LOW else None,
            "States take 32 KiB a token for a hidden size of 4096 in bfloat16; name the run with --run to compare.",
        )  # fmt: skip
    return Check.judge(
        "volume",
        f"{readable_bytes(free)} free, the run has {readable_bytes(needed) if needed else 'nothing more'} to write",
        "warn" if free < needed else None,
        "Make room, or enlarge the volume; a full one pauses the workers, and loses nothing.",
    )  # fmt: skip
