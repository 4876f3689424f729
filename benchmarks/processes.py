"""What a process and its descendants cost, by /proc."""

from __future__ import annotations

import os
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


def family(pid: int) -> list[int]:
    """`pid` and all its living descendants."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            fields = _stat(int(entry.name))
            if fields:
                parents[int(entry.name)] = int(fields[1])
    found = [pid]
    for member in found:
        found += [child for child, parent in parents.items() if parent == member]
    return found


def cpu_seconds(pid: int) -> float:
    """User and system time of the family, its ended and awaited members included."""
    total = 0
    for member in family(pid):
        fields = _stat(member)
        total += sum(int(ticks) for ticks in fields[11:15]) if fields else 0
    return total / TICK


def memory_bytes(pid: int) -> int:
    """Bytes that the family holds now: its own pages, and its share of its files' and programs'.

    Mapped dumps in /dev/shm are not its own: they are counted in the dump directory.
    """
    return sum(_bytes(member) for member in family(pid))


def _stat(pid: int) -> list[str]:
    """The fields after the name; none where the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _bytes(pid: int) -> int:
    """By the proportional shares, or where the kernel keeps none by what is resident."""
    for file, names in (("smaps_rollup", ("Pss_Anon", "Pss_File")), ("status", ("RssAnon", "RssFile"))):
        try:
            lines = [line.partition(":") for line in Path(f"/proc/{pid}/{file}").read_text().splitlines()]
        except OSError:
            continue
        found = [int(value.split()[0]) << 10 for name, _, value in lines if name in names]
        if found:
            return sum(found)
    return 0
