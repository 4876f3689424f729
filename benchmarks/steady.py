"""A worker's steady state beside prefill alone, on one running server, with every published file verified.

    python benchmarks/steady.py --url URL --dump-dir DIR --out DIRECTORY [--workloads 512 2048 mix] [--seconds 120]

For each workload: prefill alone, then `hsqueue worker` on the same kind of prompts for `--seconds` once it is under
way, then prefill alone again. The rate is of tokens that the ledger calls done, at both ends of that time. A process
beside it checks each shard that has ended, byte for byte, as `hsqueue verify --deep` does, and then removes its files,
so that the volume needs room for a few shards only. `--out` is the volume: /dev/shm for a fast one, a directory on a
disk for a slow one, whose own speed is then measured too.

Started before the server is up, it makes its prompts and plans meanwhile.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

from capture import Workload, prefill_alone, prompts_of, workloads

from hsqueue.ledger.connect import connect
from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.rebuild import reconcile
from hsqueue.local.redis import EmbeddedRedis
from hsqueue.planning.plan import load_run
from hsqueue.planning.target import read_card
from hsqueue.queue.app import make_app
from hsqueue.queue.producer import enqueue
from hsqueue.store.layout import RunLayout
from hsqueue.store.verify import check_shard
from hsworker.engine import EngineClient

ALONE_TOKENS = 330_000
SHARD_TOKENS = 130_000

WARM_UP = 8.0
"""Seconds after the first tokens are done that are left out."""
CHECKERS = 4
MARGIN = 1.15


@dataclass(frozen=True)
class Figures:
    """alone: prefill only, tokens/s, before and after. steady: tokens/s that became done. ratio: of the two.
    verified: files read whole and right. wrong: what was found wrong. unread: shards still to be read at the end.
    """

    workload: str
    seconds: float
    tokens: int
    alone: tuple[float, float]
    steady: float
    ratio: float
    verified: int
    wrong: tuple[str, ...]
    unread: int


@dataclass(frozen=True)
class Prepared:
    workload: Workload
    prompts: list[list[int]]
    root: Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--dump-dir", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="on the volume; what is published there is removed")
    parser.add_argument("--workloads", nargs="*", default=["512", "2048", "mix"])
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--rate", type=float, default=45_000, help="tokens/s expected, to plan enough prompts")
    parser.add_argument("--json", type=Path, help="rewritten after each workload")
    options = parser.parse_args()
    await_card(options.dump_dir)
    prepared = prepare(options)
    await_server(options.url)
    found = []
    for one in prepared:
        found.append(measure(one, options))
        print(found[-1], flush=True)
        if options.json is not None:
            options.json.write_text(json.dumps([asdict(figures) for figures in found], indent=1) + "\n")


def await_card(dump_dir: Path) -> None:
    while not (dump_dir / "engine.json").exists():
        time.sleep(0.5)


def await_server(url: str) -> None:
    """Until it answers a prompt; it answers other questions before."""
    client = EngineClient(url)
    while not client.alive():
        time.sleep(0.5)
    prefill_alone(url, [[5, 6, 7]], 1, "ready")


def prepare(options: argparse.Namespace) -> list[Prepared]:
    card = read_card(options.dump_dir)
    tokens = round(options.rate * (options.seconds + 2 * WARM_UP) * MARGIN)
    found = []
    for workload in workloads(tokens, card.context_length):
        if workload.name not in options.workloads:
            continue
        prompts = prompts_of(workload, card.vocab_size)
        root = options.out / workload.name
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        source = root / "prompts.jsonl"
        with source.open("w") as file:
            file.writelines(f'{{"id": "{k}", "input_ids": {ids}}}\n' for k, ids in enumerate(prompts))
        size = max(8, SHARD_TOKENS * len(prompts) // sum(map(len, prompts)))
        subprocess.run(
            [
                sys.executable, "-m", "hsqueue", "plan", source, "--out", root / "run", "--shard-size", str(size),
                "--dump-dir", options.dump_dir,
            ],
            check=True,
        )  # fmt: skip
        found.append(Prepared(workload, prompts, root))
    return found


def measure(one: Prepared, options: argparse.Namespace) -> Figures:
    workload, url = one.workload, options.url
    few = first_tokens(one.prompts, ALONE_TOKENS)
    prefill_alone(url, few[: 2 * workload.in_flight], workload.in_flight, f"{workload.name}-warm")
    before = prefill_alone(url, few, workload.in_flight, f"{workload.name}-before")
    server = EmbeddedRedis(one.root / "redis")
    try:
        seconds, tokens, checker = run_worker(one, options, server.url)
    finally:
        server.stop()
    after = prefill_alone(url, few, workload.in_flight, f"{workload.name}-after")
    shutil.rmtree(one.root)
    rate = tokens / seconds
    return Figures(
        workload.name, round(seconds, 1), tokens, (round(before), round(after)), round(rate),
        round(2 * rate / (before + after), 3), checker.verified.value, tuple(checker.wrong), checker.unread(),
    )  # fmt: skip


def first_tokens(prompts: Sequence[list[int]], tokens: int) -> list[list[int]]:
    ends = itertools.accumulate(map(len, prompts))
    return [prompt for prompt, end in zip(prompts, ends, strict=True) if end - len(prompt) < tokens]


def run_worker(one: Prepared, options: argparse.Namespace, redis_url: str) -> tuple[float, int, Checker]:
    """(seconds, tokens done in them, who checked the files)."""
    layout, info = RunLayout(one.root / "run"), load_run(one.root / "run")
    client = connect(redis_url)
    ledger = reconcile(client, redis_url, layout, info).ledger
    enqueue(make_app(redis_url), ledger, info)
    environment = {
        **os.environ, "HSQ_REDIS_URL": redis_url, "HSQ_MAX_IN_FLIGHT": str(one.workload.in_flight),
    }  # fmt: skip
    with (one.root / "worker.log").open("wb") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "hsqueue", "worker", "--engine", options.url, "--dump-dir", options.dump_dir],
            env=environment, stdout=log, stderr=log,
        )  # fmt: skip
    checker = Checker(layout.root)
    try:
        seconds, tokens = watch(ledger, info.samples, options.seconds, worker)
    except BaseException:
        print((one.root / "worker.log").read_text()[-3000:])
        raise
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(60)
        checker.finish()
    return seconds, tokens, checker


def watch(ledger: Ledger, samples: int, seconds: float, worker: subprocess.Popen[bytes]) -> tuple[float, int]:
    def tokens() -> int:
        if worker.poll() is not None:
            raise SystemExit(f"the worker ended with status {worker.returncode}")
        return ledger.counts(samples).tokens

    while not tokens():
        time.sleep(0.1)
    time.sleep(WARM_UP)
    began, first = time.monotonic(), tokens()
    while time.monotonic() - began < seconds:
        time.sleep(min(1.0, seconds))
        if ledger.counts(samples).pending == 0:
            raise SystemExit("the prompts did not last; give a higher --rate")
    return time.monotonic() - began, tokens() - first


class Checker:
    """Reads the files of every shard that has ended, in processes of their own, and removes them."""

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


if __name__ == "__main__":
    main()
