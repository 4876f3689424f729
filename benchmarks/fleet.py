"""Simulated engines, a Redis and real workers, started and ended together."""

from __future__ import annotations

import array
import json
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from checking import ended_shards
from simulated import READY, VOCABULARY
from working import start_worker

from hsqueue.contracts.fingerprint import Fingerprint, RunInfo
from hsqueue.contracts.sample import Sample
from hsqueue.contracts.target import Target
from hsqueue.local.processes import die_with_parent
from hsqueue.planning.shards import write_shard
from hsqueue.store.layout import RunLayout
from hsqueue.store.verify import check_shard

BLOCKS = 97
"""Different prompts; a sample has one of them, with its own number as the first token."""


@contextmanager
def engines(root: Path, count: int, rate: float, hidden: int) -> Iterator[tuple[int, list[str]]]:
    """(pid, URLs) of `count` simulated engines with their dump directories below `root`."""
    root.mkdir(parents=True)
    script = Path(__file__).with_name("simulated.py")
    process = subprocess.Popen(
        [
            sys.executable, script, root, "--engines", str(count), "--tokens-per-second", str(rate),
            "--hidden", str(hidden),
        ],
        preexec_fn=die_with_parent,
    )  # fmt: skip
    try:
        await_file(root / READY, process)
        yield process.pid, json.loads((root / READY).read_text())
    finally:
        end([process])


@contextmanager
def workers(
    urls: Sequence[str], dumps: Path, redis_url: str, logs: Path, settings: Mapping[str, str], pause: float = 0.0
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """`hsqueue worker` for each engine. settings: ``HSQ_*`` variables for all of them. pause: seconds between two
    starts, each of which takes a few of a processor.
    """
    logs.mkdir(parents=True, exist_ok=True)
    started = []
    try:
        for number, url in enumerate(urls):
            log, name = logs / f"worker-{number}.log", f"gpu{number}"
            started.append(start_worker(log, url, dumps / str(number), redis_url, settings, name))
            time.sleep(pause)
        yield started
    finally:
        end(started)


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    for process in processes:
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def await_file(path: Path, process: subprocess.Popen[bytes], patience: float = 60) -> None:
    deadline = time.monotonic() + patience
    while not path.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"{path.name} was not written; status {process.poll()}")
        time.sleep(0.05)


def make_run(root: Path, target: Target, samples: int, shard_size: int, tokens: int, planned: int) -> RunInfo:
    """A run of `samples` samples of `tokens` tokens each, of whose shards the first `planned` can be worked."""
    fingerprint = Fingerprint(
        model=target.model, weights=target.weights, layers=target.layers, norm=target.norm, dtype=target.dtype,
        hidden_size=target.hidden_size, vocab_size=target.vocab_size, tokenizer="none", chat_template="none",
        dataset="bench", max_length=tokens, min_loss_tokens=0, shard_size=shard_size,
    )  # fmt: skip
    info = RunInfo("bench", time.time(), samples, -(-samples // shard_size), samples * tokens, fingerprint)
    layout = RunLayout(root)
    shutil.rmtree(root, ignore_errors=True)
    (root / "plan").mkdir(parents=True)
    layout.run_json.write_text(info.to_json())
    dice = random.Random(0)
    blocks = [array.array("q", (dice.randrange(VOCABULARY) for _ in range(tokens))) for _ in range(BLOCKS)]
    for shard in range(min(planned, info.shards)):
        path = layout.plan_shard(shard)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_shard(path, [_sample(index, blocks) for index in info.shard_range(shard)])
    return info


def _sample(index: int, blocks: Sequence[array.array[int]]) -> Sample:
    ids = array.array("q", blocks[index % BLOCKS])
    ids[0] = index % VOCABULARY
    return Sample(index, str(index), ids, bytes(len(ids)))


class Sweeper(threading.Thread):
    """Removes the files of shards that have ended; every `deep`-th shard is read whole first, 0 for none.

    good: files that were read and right. wrong: what was found.
    """

    def __init__(self, root: Path, info: RunInfo, deep: int) -> None:
        super().__init__(name="sweeper", daemon=True)
        self.layout, self.info, self.deep = RunLayout(root), info, deep
        self.good, self.wrong, self.shards = 0, list[str](), 0
        self._ended = threading.Event()

    def run(self) -> None:
        seen: set[int] = set()
        while not self._ended.wait(0.2):
            for shard in ended_shards(self.layout):
                if shard not in seen:
                    seen.add(shard)
                    self._sweep(shard)

    def _sweep(self, shard: int) -> None:
        if self.deep and shard % self.deep == 0:
            check = check_shard(self.layout, self.info, shard, deep=True)
            self.good += check.good
            self.wrong += map(str, check.findings)
        shutil.rmtree(self.layout.shard_directory(shard), ignore_errors=True)
        self.shards += 1

    def stop(self) -> None:
        self._ended.set()
        self.join(30)
