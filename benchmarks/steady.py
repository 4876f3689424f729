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
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from arguments import add_server, add_work, parser
from capture import prefill_alone
from machine import write_result
from prepared import Prepared, prepare
from working import await_server, run_worker

from hsqueue.planning.target import read_card
from hsqueue.settings import Settings

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


def main() -> None:
    made = parser(__doc__)
    add_server(made)
    add_work(made, ("512", "2048", "mix"), 120.0)
    made.add_argument("--in-flight", type=int, default=Settings().max_in_flight, help="requests")
    options = made.parse_args()
    prepared = prepare(options.out, options.dump_dir, options.workloads, options.rate, options.seconds)
    await_server(options.url)
    found = []
    for one in prepared:
        found.append(measure(one, options))
        print(found[-1], flush=True)
        if options.json is not None:
            write_result(options.json, [asdict(figures) for figures in found], options.out)


def measure(one: Prepared, options: argparse.Namespace) -> Figures:
    few, name = one.first(), one.workload.name
    volume = volume_speed(one.root) / read_card(options.dump_dir).target.bytes_per_token

    def alone(mark: str, prompts: list[list[int]]) -> float:
        limit = Settings().max_tokens_in_flight
        return prefill_alone(options.url, prompts, options.in_flight, f"{name}-{mark}", limit)

    alone("warm", few[: len(few) // 4])
    before = alone("before", few)
    window, checker = run_worker(one, options.url, options.dump_dir, options.in_flight, options.seconds)
    after = alone("after", few)
    shutil.rmtree(one.root)
    rate, prefill = window.rate, (before + after) / 2
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


if __name__ == "__main__":
    main()
