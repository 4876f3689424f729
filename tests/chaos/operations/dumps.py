"""Dumps that are not what they should be. The worker is stopped meanwhile, so that whole ones lie there to be hit."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hsqueue.contracts.dump import DUMP_FILE
from tests.chaos.operations.freeze import Freeze
from tests.chaos.operations.processes import Find

PATIENCE = 3.0
"""Seconds for requests in flight to end in dumps."""


@dataclass(frozen=True, slots=True)
class SpoilDumps:
    """spoil: takes the dumps that lie there unread and returns how many it changed. worker: all its processes."""

    worker: Find
    dump_dir: Path
    spoil: Callable[[list[Path]], int]

    def apply(self) -> str:
        stopped = Freeze(self.worker)
        if not stopped.apply():
            return ""
        try:
            count = self.spoil(self._settled())
        finally:
            stopped.undo()
        return f"{count} dumps" if count else ""

    def undo(self) -> None:
        return

    def _settled(self) -> list[Path]:
        """Those there once no more come."""
        deadline, before = time.monotonic() + PATIENCE, -1
        while True:
            found = sorted(self.dump_dir.glob(f"req_hsq.*/{DUMP_FILE}"))
            if (found and len(found) == before) or time.monotonic() >= deadline:
                return found
            before = len(found)
            # So long nothing new must have come.
            time.sleep(0.2)


def torn(paths: list[Path]) -> int:
    """Half of each is missing."""
    for path in paths:
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size // 2)
    return len(paths)


def swapped(paths: list[Path]) -> int:
    """Neighbours have changed places, those of one length first, so that only their content tells them apart."""
    paths = sorted(paths, key=lambda path: path.stat().st_size)
    for a, b in zip(paths[::2], paths[1::2], strict=False):
        aside = a.with_name("aside")
        a.rename(aside)
        b.rename(a)
        aside.rename(b)
    return len(paths) // 2 * 2


def rows_swapped(paths: list[Path]) -> int:
    """Neighbours of one length keep their headers, and so their names, and have exchanged everything below them."""
    by_size: dict[int, list[Path]] = {}
    for path in paths:
        by_size.setdefault(path.stat().st_size, []).append(path)
    count = 0
    for alike in by_size.values():
        for a, b in zip(alike[::2], alike[1::2], strict=False):
            one, other = a.read_bytes(), b.read_bytes()
            start, end = _payload(one), _payload(other)
            if start == end and one[start:] != other[end:]:
                _overwrite(a, start, other[end:])
                _overwrite(b, end, one[start:])
                count += 2
    return count


def _payload(data: bytes) -> int:
    return 8 + int.from_bytes(data[:8], "little")


def _overwrite(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)
