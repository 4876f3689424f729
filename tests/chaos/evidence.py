"""What stands on the volume, and proof that it was put there once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from safetensors import safe_open

from hsqueue.contracts.rid import parse_rid
from hsqueue.planning.plan import load_run
from hsqueue.store.layout import RunLayout

Mark = tuple[int, int, int]
"""Inode, time of the last change in ns, bytes."""


def standing(root: Path) -> dict[str, Mark]:
    """Every published file of the run and what would change, should it ever be replaced."""
    found = {}
    for path in root.glob("samples/*/*/[0-9]*.safetensors"):
        stat = path.stat()
        found[str(path)] = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
    return found


def replaced(before: dict[str, Mark], after: dict[str, Mark]) -> list[str]:
    """Files that went, or are not what they were."""
    return [path for path, mark in before.items() if after.get(path) != mark]


def linked_twice(logs: Iterable[Path]) -> list[str]:
    """Names of samples that were published more than once, by the logs of every call of ``link`` that worked."""
    counts: Counter[str] = Counter()
    for log in logs:
        if log.exists():
            counts.update(line for line in log.read_text().splitlines() if line.endswith(".safetensors"))
    return sorted(name for name, count in counts.items() if count > 1)


def asked_for(requests: Iterable[tuple[str, int]], root: Path) -> list[int]:
    """Indices of the run's samples among an engine's requests, (rid, tokens), in their order."""
    run = load_run(root).run
    rids = (parse_rid(rid) for rid, _ in requests)
    return [rid.index for rid in rids if rid is not None and rid.run == run]


def fences(root: Path, shard: int) -> set[int]:
    """Fencing tokens of the leases under which the samples of a shard were published."""
    found = set()
    for path in RunLayout(root).shard_directory(shard).glob("[0-9]*.safetensors"):
        with safe_open(path, "pt") as file:
            rid = parse_rid(file.metadata()["rid"])
        assert rid is not None
        found.add(rid.fence)
    return found
