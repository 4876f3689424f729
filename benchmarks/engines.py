"""Many workers on one Redis: how near to linear, and what Redis has to do for it.

    python benchmarks/engines.py DIRECTORY [--engines 1 4 16 64] [--tokens 2048] [--seconds 90] [--json FILE]

For each number of engines: simulated engines with the service times of a 70B-class server (assumed: 5,000 tokens a
second, so 0.41 s for a prompt of 2,048), one `hsqueue worker` for each, one Redis, one run of 10^6 samples, all of
which is enqueued. After every engine has had work for half of `--seconds`, a window of `--seconds` is measured. Its
ideal is the engines' own schedule: served without a pause, 1.0. A shard takes an engine about a minute.

Real: Redis, Celery, queue, leases, reaper, heartbeats, HTTP, dumps, matching, publishing, commits, manifests; every
process of every worker. Simulated: the engines, which compute nothing; the states, 32 bytes a token instead of 32 KiB,
since one machine has not the memory bandwidth of 64; and of the 10^6 samples as many are worked as the time allows.
DIRECTORY is the volume, best /dev/shm; files are removed when their shard has ended.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
import requests
from arguments import parser
from fleet import Sweeper, engines, make_run, workers
from machine import write_result
from processes import cpu_seconds, memory_bytes
from queued import known, queue, redis_in

from hsqueue.ledger.ledger import Ledger
from hsqueue.planning.target import read_card

SAMPLES = 1_000_000
RATE = 5000.0
HIDDEN = 4
SHARD_TOKENS = 262_144
SETTINGS = {"HSQ_MAX_IN_FLIGHT": "8"}
START_SECONDS = 400


@dataclass(frozen=True, slots=True)
class Look:
    """At one moment. served: seconds of all engines. redis: of its processor. commands: it has processed.
    workers: processor seconds of all their processes.
    """

    time: float
    served: float
    done: int
    redis: float
    commands: int
    workers: float


def main() -> None:
    made = parser(__doc__)
    made.add_argument("directory", type=Path)
    made.add_argument("--engines", type=int, nargs="+", default=[1, 4, 16, 64])
    made.add_argument("--tokens", type=int, default=2048, help="of a prompt")
    made.add_argument("--seconds", type=float, default=90)
    made.add_argument("--pause", type=float, default=3, help="seconds between starts of workers")
    options = made.parse_args()
    figures = []
    for count in options.engines:
        with tempfile.TemporaryDirectory(dir=options.directory) as directory:
            figures.append(measure(Path(directory), count, options))
        print(figures[-1], flush=True)
        if options.json:
            write_result(options.json, figures, options.directory)


def measure(directory: Path, count: int, options: argparse.Namespace) -> dict[str, Any]:
    places, root = directory / "engines", directory / "run"
    tokens, seconds = options.tokens, options.seconds
    with redis_in(directory / "redis") as server, engines(places, count, RATE, HIDDEN) as (simulator, urls):
        planned = count * (2 + round((START_SECONDS + 2 * seconds) * RATE / SHARD_TOKENS))
        info = make_run(root, read_card(places / "0").target, SAMPLES, SHARD_TOKENS // tokens, tokens, planned)
        ledger = known(root, info, server.url)
        client = ledger.client
        began = time.monotonic()
        sent = queue(ledger, info)
        queued = time.monotonic() - began
        sweeper = Sweeper(root, info, deep=0)
        with workers(urls, places, server.url, directory / "logs", SETTINGS, options.pause) as started:
            sweeper.start()
            await_all(urls, directory, tokens)
            time.sleep(seconds / 2)
            others = (simulator, server.process.pid)
            first = look(urls, ledger, client, others)
            time.sleep(seconds)
            last = look(urls, ledger, client, others)
            clients = int(client.info("clients")["connected_clients"])
            memory = sum(memory_bytes(process.pid) for process in started[:4]) / len(started[:4])
        sweeper.stop()
        return {
            **figures(first, last, count), "tokens": tokens, "memory_mib_a_worker": round(memory / 2**20, 1),
            "redis_connections": clients, "messages": sent, "messages_per_s": round(sent / queued),
            "redis_memory_mib": round(int(client.info("memory")["used_memory"]) / 2**20, 1),
        }  # fmt: skip


def await_all(urls: Sequence[str], directory: Path, tokens: int) -> None:
    """Until each engine has been given a sample."""
    deadline = time.monotonic() + START_SECONDS
    while min(busy(url)["tokens"] for url in urls) < tokens:
        if time.monotonic() > deadline:
            logs = sorted((directory / "logs").glob("*.log"))
            raise SystemExit("not all workers started:\n" + logs[-1].read_text()[-2000:])
        time.sleep(1)


def busy(url: str) -> dict[str, Any]:
    return dict(requests.get(f"{url}/busy", timeout=60).json())


def look(urls: Sequence[str], ledger: Ledger, client: redis.Redis, others: tuple[int, int]) -> Look:
    workers_seconds = cpu_seconds(os.getpid()) - sum(map(cpu_seconds, others)) - own_seconds()
    cpu, stats = client.info("cpu"), client.info("stats")
    with ThreadPoolExecutor(8) as pool:
        served = sum(found["served"] for found in pool.map(busy, urls))
    return Look(
        time.monotonic(), served, ledger.counts(SAMPLES).done,
        float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"]), int(stats["total_commands_processed"]),
        workers_seconds,
    )  # fmt: skip


def own_seconds() -> float:
    used = os.times()
    return used.user + used.system


def figures(first: Look, last: Look, count: int) -> dict[str, Any]:
    seconds, samples = last.time - first.time, last.done - first.done
    return {
        "engines": count, "seconds": round(seconds, 1), "samples": samples,
        "samples_per_s": round(samples / seconds, 2),
        "of_linear": round((last.served - first.served) / (count * seconds), 4),
        "redis_share_of_a_core": round((last.redis - first.redis) / seconds, 4),
        "redis_commands_per_s": round((last.commands - first.commands) / seconds, 1),
        "workers_cores": round((last.workers - first.workers) / seconds, 3),
        "workers_ms_a_sample": round(1000 * (last.workers - first.workers) / samples, 2),
        "load": os.getloadavg()[0],
    }  # fmt: skip


if __name__ == "__main__":
    main()
