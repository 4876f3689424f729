"""A worker's steady state beside prefill alone, on one running server, with every published file verified.

    python benchmarks/steady.py --url URL --dump-dir DIR --out DIRECTORY [--workloads 512 2048 mix] [--seconds 120]

For each workload: prefill alone, then `hsqueue worker` on the same kind of prompts for `--seconds` once it is under
way, then prefill alone again, which sends its prompts in the worker's order and keeps as many in flight. The rate is
of tokens that the ledger calls done, at both ends of that time. A process beside it checks each shard that has ended,
byte for byte, as `hsqueue verify --deep` does, and then removes its files, so that the volume needs room for a few
shards only. `--out` is the volume: /dev/shm for a fast one, a directory on a disk for a slow one. How fast it takes
files is measured first, by as many writers as write it best.

Started before the server is up, it makes its prompts and plans meanwhile.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from capture import Workload, prefill_alone, prompts_of, workloads
from checking import Checker
from machine import write_result
from processes import cpu_seconds, memory_bytes

from hsqueue.ledger.connect import connect
from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.rebuild import reconcile
from hsqueue.local.redis import EmbeddedRedis
from hsqueue.planning.plan import load_run
from hsqueue.planning.target import read_card
from hsqueue.queue.app import make_app
from hsqueue.queue.producer import enqueue
from hsqueue.settings import Settings
from hsqueue.store.layout import RunLayout
from hsworker.engine import EngineClient

ALONE_TOKENS = 1_300_000
SHARD_TOKENS = 130_000

WARM_UP = 8.0
"""Seconds after the first tokens are done that are left out."""
MARGIN = 1.15
VOLUME_FILE = 64 << 20
VOLUME_WRITERS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Figures:
    """alone: prefill only, tokens/s, before and after. steady: tokens/s that became done. ratio: of the two.
    volume: tokens/s that it takes, by its own speed. bounded: steady over the smaller of prefill and volume.
    verified: files read whole and right. wrong: what was found wrong. unread: shards still to be read at the end.
    cpu: seconds of the worker's processes a sample. memory: MiB of them together, each page once, at the most.
    """

    workload: str
    in_flight: int
    seconds: float
    tokens: int
    samples: int
    alone: tuple[float, float]
    volume: float
    steady: float
    ratio: float
    bounded: float
    verified: int
    wrong: tuple[str, ...]
    unread: int
    cpu: float
    memory: int


@dataclass(frozen=True)
class Prepared:
    workload: Workload
    prompts: list[list[int]]
    root: Path
    shard_size: int

    def first(self, tokens: int) -> list[list[int]]:
        """So many tokens' worth of prompts, in the order in which a worker sends them."""
        begins = range(0, len(self.prompts), self.shard_size)
        shards = (self.prompts[begin : begin + self.shard_size] for begin in begins)
        sent = [prompt for shard in shards for prompt in sorted(shard, key=len, reverse=True)]
        ends = itertools.accumulate(map(len, sent))
        return [prompt for prompt, end in zip(sent, ends, strict=True) if end - len(prompt) < tokens]


@dataclass(frozen=True)
class Window:
    """What happened in the time that counts. cpu: seconds. memory: bytes."""

    seconds: float
    tokens: int
    samples: int
    cpu: float
    memory: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--dump-dir", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="on the volume; what is published there is removed")
    parser.add_argument("--workloads", nargs="*", default=["512", "2048", "mix"])
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--in-flight", type=int, default=Settings().max_in_flight, help="requests")
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
            write_result(options.json, [asdict(figures) for figures in found], options.out)


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
        found.append(Prepared(workload, prompts, root, size))
    return found


def measure(one: Prepared, options: argparse.Namespace) -> Figures:
    few, name = one.first(ALONE_TOKENS), one.workload.name
    volume = volume_speed(one.root) / read_card(options.dump_dir).target.bytes_per_token

    def alone(mark: str, prompts: list[list[int]]) -> float:
        limit = Settings().max_tokens_in_flight
        return prefill_alone(options.url, prompts, options.in_flight, f"{name}-{mark}", limit)

    alone("warm", few[: len(few) // 4])
    before = alone("before", few)
    server = EmbeddedRedis(one.root / "redis")
    try:
        window, checker = run_worker(one, options, server.url)
    finally:
        server.stop()
    after = alone("after", few)
    shutil.rmtree(one.root)
    rate, prefill = window.tokens / window.seconds, (before + after) / 2
    return Figures(
        name, options.in_flight, round(window.seconds, 1), window.tokens, window.samples, (round(before), round(after)),
        round(volume), round(rate), round(rate / prefill, 3), round(rate / min(prefill, volume), 3),
        checker.verified.value, tuple(checker.wrong), checker.unread(),
        round(window.cpu / max(1, window.samples), 5), window.memory >> 20,
    )  # fmt: skip


def volume_speed(directory: Path) -> float:
    """Bytes a second of whole files, each synced, by as many writers as are fastest."""
    return max(files_a_second(directory, writers) for writers in VOLUME_WRITERS) * VOLUME_FILE


def files_a_second(directory: Path, writers: int) -> float:
    data, files = os.urandom(VOLUME_FILE), max(32, 2 * writers)

    def write(k: int) -> None:
        path = directory / f"speed-{k}"
        with path.open("wb", buffering=0) as file:
            file.write(data)
            os.fdatasync(file.fileno())
        path.unlink()

    with ThreadPoolExecutor(writers) as pool:
        began = time.monotonic()
        list(pool.map(write, range(files)))
        return files / (time.monotonic() - began)


def run_worker(one: Prepared, options: argparse.Namespace, redis_url: str) -> tuple[Window, Checker]:
    layout, info = RunLayout(one.root / "run"), load_run(one.root / "run")
    client = connect(redis_url)
    ledger = reconcile(client, redis_url, layout, info).ledger
    enqueue(make_app(redis_url), ledger, info)
    worker = start_worker(one.root, options.url, options.dump_dir, options.in_flight, redis_url)
    checker = Checker(layout.root)
    try:
        window = watch(ledger, info.samples, options.seconds, worker)
    except BaseException:
        print((one.root / "worker.log").read_text()[-3000:])
        raise
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(60)
        checker.finish()
    return window, checker


def start_worker(
    root: Path, url: str, dump_dir: Path, in_flight: int, redis_url: str, name: str = "gpu0"
) -> subprocess.Popen[bytes]:
    """Its log is ``worker.log`` in `root`, after what was there."""
    environment = {**os.environ, "HSQ_REDIS_URL": redis_url, "HSQ_MAX_IN_FLIGHT": str(in_flight)}
    with (root / "worker.log").open("ab") as log:
        return subprocess.Popen(
            [
                sys.executable, "-m", "hsqueue", "worker", "--engine", url, "--dump-dir", dump_dir, "--name", name,
            ],
            env=environment, stdout=log, stderr=log,
        )  # fmt: skip


def watch(ledger: Ledger, samples: int, seconds: float, worker: subprocess.Popen[bytes]) -> Window:
    def done() -> tuple[int, int]:
        if worker.poll() is not None:
            raise SystemExit(f"the worker ended with status {worker.returncode}")
        counts = ledger.counts(samples)
        return counts.tokens, counts.done

    while not done()[0]:
        time.sleep(0.1)
    time.sleep(WARM_UP)
    began, first, cpu, memory = time.monotonic(), done(), cpu_seconds(worker.pid), 0
    while time.monotonic() - began < seconds:
        time.sleep(min(1.0, seconds))
        memory = max(memory, memory_bytes(worker.pid))
        if ledger.counts(samples).pending == 0:
            raise SystemExit("the prompts did not last; give a higher --rate")
    last = done()
    return Window(
        time.monotonic() - began, last[0] - first[0], last[1] - first[1], cpu_seconds(worker.pid) - cpu, memory
    )


if __name__ == "__main__":
    main()
