"""What every figure is kept with: the command, the machine and the date, without the machine's name."""

from __future__ import annotations

import datetime
import json
import os
import platform
import shlex
import sys
from pathlib import Path
from typing import Any

BLOCK_DEVICES = Path("/sys/dev/block")


def write_result(path: Path, figures: Any, volume: Path | None = None) -> None:
    """`figures` to `path`, as JSON. volume: a directory of the disk that was measured."""
    found = {
        "command": command(), "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(volume), "figures": figures,
    }  # fmt: skip
    path.write_text(json.dumps(found, indent=1) + "\n")


def command() -> str:
    """As it was typed in the repository, with full paths of this machine left out."""
    script = Path(sys.argv[0])
    return shlex.join(["python", f"{script.parent.name}/{script.name}", *map(_without_place, sys.argv[1:])])


def _without_place(argument: str) -> str:
    return "DIR" if argument.startswith("/") and not argument.startswith("/dev/shm") else argument


def machine(volume: Path | None = None) -> dict[str, Any]:
    """load: of the last minute and five, so of the benchmark as well."""
    return {
        "processor": _processor(), "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "kernel": platform.release().split("-")[0], "python": platform.python_version(),
        "volume": _file_system(volume) if volume else None, "load": [round(n, 1) for n in os.getloadavg()[:2]],
    }  # fmt: skip


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _file_system(path: Path) -> str:
    """Such as ``ext4 on a virtual disk``."""
    device = path.stat().st_dev
    numbers = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        if fields[2] == numbers:
            return f"{fields[fields.index('-') + 1]} on {_disk(numbers)}"
    return "unknown"


def _disk(numbers: str) -> str:
    link = BLOCK_DEVICES / numbers
    if not link.exists():
        return "memory"
    queue = link.resolve() / "queue" / "rotational"
    if link.resolve().name.startswith("vd"):
        return "a virtual disk (virtio)"
    return "a disk that turns" if queue.exists() and queue.read_text().strip() == "1" else "a solid-state disk"
