"""The dump directory: there, writable, in memory, and large enough."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from hsqueue.doctor.check import Check
from hsqueue.wording import readable_bytes

IN_MEMORY = ("tmpfs", "ramfs", "hugetlbfs")
DEFAULT_LIMIT = 0.5
"""Part of the file system that the engine fills with dumps unless HSQ_DUMP_LIMIT says otherwise."""


def check_dump_directory(directory: Path, wanted: int, longest: int | None) -> Iterator[Check]:
    """wanted: bytes that a worker may have waiting. longest: of one dump of the run, if one is named."""
    if not directory.is_dir():
        yield Check(
            "dumps", "bad", f"{directory} does not exist here",
            "Start the engine with HSQ_DUMP_DIR set to it; in containers, share it between engine and worker.",
        )  # fmt: skip
        return
    writable = os.access(directory, os.W_OK)
    yield Check.judge(
        "dumps", f"{directory} is {'' if writable else 'not '}writable", None if writable else "bad",
        "Run the worker as the engine's user; it removes dumps.",
    )  # fmt: skip
    yield check_file_system(file_system(directory.resolve(), Path("/proc/mounts").read_text()))
    usage = shutil.disk_usage(directory)
    yield check_room(usage.total, usage.free, wanted)
    if longest is not None:
        yield check_longest(usage.total, longest)


def file_system(path: Path, mounts: str) -> str:
    """Type of the file system that holds `path`. mounts: as in /proc/mounts."""
    best, kind = "", "unknown"
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        place = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[1])
        # The last of several mounts at one place is the one that is seen.
        if path.is_relative_to(place) and len(place) >= len(best):
            best, kind = place, fields[2]
    return kind


def check_file_system(kind: str) -> Check:
    return Check.judge(
        "dumps", f"it lies on {kind}", None if kind in IN_MEMORY else "warn",
        "Put it into memory, such as /dev/shm; every state is written there once and read once.",
    )  # fmt: skip


def check_room(total: int, free: int, wanted: int) -> Check:
    """Of the file system, bytes, against what the worker may have waiting, and the engine's own limit."""
    text = f"{readable_bytes(free)} free of {readable_bytes(total)}, HSQ_MAX_DUMP_BYTES is {readable_bytes(wanted)}"
    if free < wanted:
        do = "Lower HSQ_MAX_DUMP_BYTES, or enlarge /dev/shm (shm_size in Docker)."
    else:
        do = "The engine takes half of the file system at most: lower HSQ_MAX_DUMP_BYTES, or set HSQ_DUMP_LIMIT for it."
    return Check.judge("dumps", text, "warn" if min(free, DEFAULT_LIMIT * total) < wanted else None, do)


def check_longest(total: int, longest: int) -> Check:
    """Whether the largest dump that the run may ask for fits at all."""
    return Check.judge(
        "dumps", f"the run's longest prompt may have a dump of {readable_bytes(longest)}",
        "warn" if longest > DEFAULT_LIMIT * total else None,
        "The engine drops a dump that is larger than its limit: set HSQ_DUMP_LIMIT for it, or enlarge /dev/shm.",
    )  # fmt: skip
