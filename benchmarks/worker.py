"""What a worker costs a sample in processor time and memory, beside a simulated engine that writes real dumps.

    python benchmarks/worker.py DIRECTORY [--samples 2000] [--tokens 2048] [--shard 32] [--hidden 4096 16] [--json FILE]

DIRECTORY is the volume; /dev/shm stands for a fast one. A run for each hidden size, with `hsqueue worker` as it is, a
Redis and a
simulated engine of fixed service times (benchmarks/simulated.py): with 32 KiB of states a token, and with 128 bytes,
where the same prompts, requests, dumps and commits are left and hardly any bytes to copy. Files are removed as
the run goes, every eighth shard read whole before.

Processor time is that of the worker's processes, from the first shard's end to the last sample. Beside it stands what
the copy of the same dumps costs alone: hashed and written by a plain loop into the same volume, before and after.
Memory is looked at every half second. A mapped dump counts for the dump directory, not for the worker.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import xxhash
from arguments import parser
from fleet import Sweeper, engines, make_run, workers
from machine import write_result
from processes import cpu_seconds, family
from queued import known, queue, redis_in

from hsqueue.ledger.ledger import Ledger
from hsqueue.planning.target import read_card

RATE = 30_000
COPIES = 100
CHUNK = 1 << 20
SETTINGS = {"HSQ_MAX_DUMP_BYTES": str(2 << 30)}


def main() -> None:
    made = parser(__doc__)
    made.add_argument("directory", type=Path)
    made.add_argument("--samples", type=int, default=2000)
    made.add_argument("--tokens", type=int, default=2048)
    made.add_argument("--shard", type=int, default=32, help="samples; the volume holds the files of a few shards")
    made.add_argument("--hidden", type=int, nargs="+", default=[4096, 16])
    options = made.parse_args()
    figures = {}
    for hidden in options.hidden:
        name = f"{4 * hidden * 2:,} bytes a token"
        with (
            tempfile.TemporaryDirectory(dir="/dev/shm") as dumps,
            tempfile.TemporaryDirectory(dir=options.directory) as volume,
        ):
            figures[name] = measure(Path(dumps), Path(volume), options, hidden)
        print(name, {k: v for k, v in figures[name].items() if k != "memory_mib_over_time"}, flush=True)
    if options.json:
        write_result(options.json, figures, options.directory)


def measure(dumps: Path, volume: Path, options: argparse.Namespace, hidden: int) -> dict[str, Any]:
    size, places, root = options.tokens * 4 * hidden * 2, dumps / "engines", volume / "run"
    before = copy_seconds(dumps, volume, size)
    with redis_in(volume / "redis") as server, engines(places, 1, RATE, hidden) as (_, urls):
        shards = -(-options.samples // options.shard)
        target = read_card(places / "0").target
        info = make_run(root, target, options.samples, options.shard, options.tokens, shards)
        ledger = known(root, info, server.url)
        queue(ledger, info)
        sweeper = Sweeper(root, info, deep=8)
        with workers(urls, places, server.url, volume / "logs", SETTINGS) as (worker,):
            sweeper.start()
            found = follow(ledger, info.samples, options.shard, worker)
        sweeper.stop()
    after = copy_seconds(dumps, volume, size)
    copied = (before + after) / 2
    return {
        "samples": options.samples, "tokens": options.tokens, "bytes_a_sample": size, **found,
        "copy_alone_ms": [round(1000 * seconds, 2) for seconds in (before, after)],
        "beyond_the_copy_ms": round(found["processor_ms_a_sample"] - 1000 * copied, 2),
        "files_read_and_right": sweeper.good, "wrong": sweeper.wrong,
    }  # fmt: skip


def copy_seconds(dumps: Path, volume: Path, size: int) -> float:
    """Processor seconds to hash and copy one file of `size` bytes: the median of COPIES."""
    source, target, seconds = dumps / "copied", volume / "copy", []
    source.write_bytes(os.urandom(size))
    for _ in range(COPIES):
        began = processor_seconds()
        digest = xxhash.xxh3_128()
        with source.open("rb", buffering=0) as reader, target.open("wb", buffering=0) as writer:
            while chunk := reader.read(CHUNK):
                digest.update(chunk)
                writer.write(chunk)
            os.fsync(writer.fileno())
        target.unlink()
        seconds.append(processor_seconds() - began)
    source.unlink()
    return statistics.median(seconds)


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def follow(ledger: Ledger, samples: int, shard: int, worker: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Waits until all are done."""

    def done() -> int:
        if worker.poll() is not None:
            raise SystemExit(f"the worker ended with status {worker.returncode}")
        return ledger.counts(samples).done

    while done() < shard:
        time.sleep(0.05)
    first, began, used = done(), time.monotonic(), cpu_seconds(worker.pid)
    memory = Memory(worker.pid)
    memory.start()
    while (now := done()) < samples:
        time.sleep(0.2)
    seconds, used = time.monotonic() - began, cpu_seconds(worker.pid) - used
    memory.stop()
    return {
        "seconds": round(seconds, 1), "samples_per_s": round((now - first) / seconds, 1),
        "processor_ms_a_sample": round(1000 * used / (now - first), 2), **memory.figures(),
    }  # fmt: skip


class Memory(threading.Thread):
    """Of each process of the worker, by what is its own (USS) and by its share (PSS), without shared memory."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid = pid
        self.sums: list[float] = []
        self.own: dict[int, float] = {}
        self._ended = threading.Event()

    def run(self) -> None:
        self._look()
        while not self._ended.wait(0.5):
            self._look()

    def _look(self) -> None:
        total = 0.0
        for pid in family(self.pid):
            own, share = look(pid)
            self.own[pid] = max(own, self.own.get(pid, 0.0))
            total += share
        self.sums.append(total)

    def stop(self) -> None:
        self._ended.set()
        self.join()

    def figures(self) -> dict[str, Any]:
        quarter = max(1, len(self.sums) // 4)
        return {
            "memory_mib_peak": round(max(self.sums), 1),
            "memory_mib_first_and_last_quarter": [
                round(statistics.median(part), 1) for part in (self.sums[:quarter], self.sums[-quarter:])
            ],
            "own_mib_peak_of_each_process": sorted((round(v, 1) for v in self.own.values() if v > 1), reverse=True),
            "memory_mib_over_time": [round(value, 1) for value in self.sums],
        }


def look(pid: int) -> tuple[float, float]:
    """(own, share) in MiB; nothing where the process is gone."""
    try:
        found = psutil.Process(pid).memory_maps(grouped=True)
    except psutil.Error:
        return 0.0, 0.0
    maps = [m for m in found if not m.path.startswith("/dev/shm")]
    own = sum(m.private_clean + m.private_dirty for m in maps)
    return own / 2**20, sum(m.pss for m in maps) / 2**20


if __name__ == "__main__":
    main()
