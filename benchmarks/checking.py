"""Reads the files of every shard that has ended while a benchmark runs, and removes them."""

from __future__ import annotations

import multiprocessing
import threading
import time
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

from hsqueue.local.processes import die_with_parent
from hsqueue.planning.plan import load_run
from hsqueue.store.layout import RunLayout
from hsqueue.store.verify import check_shard

CHECKERS = 4


class Checker:
    """In processes of their own. verified: files found whole and right. wrong: what was found."""

    def __init__(self, root: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self.root = root
        self.verified: Synchronized[int] = context.Value("q", 0)
        self._found = context.Queue()
        self._done = context.Event()
        self.wrong: list[str] = []
        self._processes = [
            context.Process(target=check_ended, args=(root, k, self.verified, self._found, self._done), daemon=True)
            for k in range(CHECKERS)
        ]
        for process in self._processes:
            process.start()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while (text := self._found.get()) is not None:
            self.wrong.append(text)

    def finish(self) -> None:
        """Waits until all shards that have ended are read."""
        self._done.set()
        for process in self._processes:
            process.join(120)
        self._found.put(None)
        self._reader.join(10)

    def unread(self) -> int:
        layout = RunLayout(self.root)
        return sum(any(layout.shard_directory(s).glob("*.safetensors")) for s in ended_shards(layout))


def check_ended(root: Path, mine: int, verified: Synchronized[int], found: object, done: object) -> None:
    """Every CHECKERS-th shard."""
    die_with_parent()
    layout, info, seen = RunLayout(root), load_run(root), set()
    while True:
        is_last = done.is_set()  # type: ignore[attr-defined]
        new = [s for s in ended_shards(layout) if s % CHECKERS == mine and s not in seen]
        for shard in new:
            check = check_shard(layout, info, shard, deep=True)
            for finding in check.findings:
                found.put(str(finding))  # type: ignore[attr-defined]
            with verified.get_lock():
                verified.value += check.good
            for path in layout.shard_directory(shard).glob("*.safetensors"):
                path.unlink()
            seen.add(shard)
        if is_last:
            return
        if not new:
            time.sleep(0.1)


def ended_shards(layout: RunLayout) -> list[int]:
    return sorted(int(path.stem.removeprefix("shard-")) for path in layout.manifests.glob("*/shard-*.json"))
