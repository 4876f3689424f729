"""Publishing dumps, from /dev/shm to a disk with checksum, fsync and link, beside `cp` of the same files.

    python benchmarks/publish.py DIRECTORY [--megabytes 64 16] [--total 1024] [--rounds 9] [--json FILE]

DIRECTORY lies on the volume to be measured. Each round does all ways, one after the other, on the same dumps, each
round in another order: `cp`; `cp` and `sync` of its files; as many `cp` and `sync` at a time as a worker has
publishers; publishing by the worker's own code, with that many publishers and with one. Nothing waits to be written
to the file system when one begins. `cp` alone may leave all of its bytes in memory; the others leave none.

A ratio is taken within each round, since a shared machine is not the same from one to the next; medians are reported.
"""

from __future__ import annotations

import array
import ctypes
import json
import os
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arguments import parser
from machine import write_result

from hsqueue.contracts.dump import DUMP_FILE, INPUT_IDS, DumpMeta, expected_tensors
from hsqueue.contracts.rid import RequestId
from hsqueue.contracts.tensorfile import LENGTH_BYTES, build_header, header_length, layout, parse_header
from hsqueue.settings import Settings
from hsqueue.store.files import fsync_directory
from hsqueue.store.publish import Publication, publish

RUN = "bench"
LAYERS = (2, 18, 33)
HIDDEN = 4096
BYTES_PER_TOKEN = 4 * HIDDEN * 2


@dataclass(slots=True)
class Seconds:
    """Of each round. processor: user and system."""

    wall: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)


def main() -> None:
    made = parser(__doc__)
    made.add_argument("directory", type=Path)
    made.add_argument("--megabytes", type=float, nargs="+", default=[64, 16], help="of one dump")
    made.add_argument("--total", type=float, default=1024, help="megabytes of all dumps together")
    made.add_argument("--rounds", type=int, default=9)
    made.add_argument("--publishers", type=int, default=Settings().publishers)
    options = made.parse_args()
    figures = []
    for megabytes in options.megabytes:
        tokens = max(1, round(megabytes * (1 << 20) / BYTES_PER_TOKEN))
        with (
            tempfile.TemporaryDirectory(dir="/dev/shm") as dumps,
            tempfile.TemporaryDirectory(dir=options.directory) as volume,
        ):
            count = max(1, round(options.total / megabytes))
            sources = [make_dump(Path(dumps), index, tokens) for index in range(count)]
            figures.append(measure(sources, tokens, Path(volume), options.rounds, options.publishers))
        print(json.dumps(figures[-1], indent=1), flush=True)
    if options.json:
        write_result(options.json, figures, options.directory)


def measure(sources: Sequence[Path], tokens: int, volume: Path, rounds: int, publishers: int) -> dict[str, Any]:
    ways: dict[str, Callable[[Path], None]] = {
        "cp": lambda target: copy(sources, target),
        "cp+sync": lambda target: copy_and_sync(sources, target, 1),
        "cp+sync, parallel": lambda target: copy_and_sync(sources, target, publishers),
        "publish": lambda target: publish_all(sources, tokens, target, publishers),
        "publish, one publisher": lambda target: publish_all(sources, tokens, target, 1),
    }
    found = {name: Seconds() for name in ways}
    names = list(ways)
    for turn in range(rounds):
        for name in (*names[turn % len(names) :], *names[: turn % len(names)]):
            target = fresh(volume)
            timed(found[name], lambda target=target, name=name: ways[name](target))
    fresh(volume)
    total = sum(path.stat().st_size for path in sources)
    return {
        "files": len(sources), "bytes_a_file": total // len(sources), "rounds": rounds, "publishers": publishers,
        "seconds_median": {name: round(statistics.median(s.wall), 3) for name, s in found.items()},
        "seconds": {name: [round(value, 3) for value in s.wall] for name, s in found.items()},
        "bytes_per_s": {name: round(total / statistics.median(s.wall)) for name, s in found.items()},
        "publish_over": {name: ratio(found[name], found["publish"]) for name in names[:3]},
        "one_publisher_over": {name: ratio(found[name], found["publish, one publisher"]) for name in names[:2]},
        "processor_ms_a_file": {
            name: round(statistics.median(s.processor) / len(sources) * 1000, 2) for name, s in found.items()
        },
    }  # fmt: skip


def ratio(other: Seconds, mine: Seconds) -> float:
    """How many times as fast `mine` is: the median of the rounds."""
    return round(statistics.median(a / b for a, b in zip(other.wall, mine.wall, strict=True)), 3)


def timed(seconds: Seconds, work: Callable[[], None]) -> None:
    before = processor_seconds()
    began = time.perf_counter()
    work()
    seconds.wall.append(time.perf_counter() - began)
    seconds.processor.append(processor_seconds() - before)


def processor_seconds() -> float:
    """Of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def fresh(volume: Path) -> Path:
    """An empty directory, on a file system that has nothing left to write."""
    for path in volume.iterdir():
        shutil.rmtree(path)
    target = volume / "samples"
    target.mkdir()
    descriptor = os.open(volume, os.O_RDONLY)
    try:
        # Twice, since what the first frees may be written by the second.
        for _ in range(2):
            ctypes.CDLL(None).syncfs(descriptor)
    finally:
        os.close(descriptor)
    return target


def copy(sources: Sequence[Path], target: Path) -> None:
    """One cp for all, each file in a directory of its own."""
    subprocess.run(["cp", "-r", *(source.parent for source in sources), target], check=True)


def copy_and_sync(sources: Sequence[Path], target: Path, parts: int) -> None:
    """In `parts` processes at a time, each of which copies its share and then waits for its files to be on disk."""

    def one(share: Sequence[Path]) -> None:
        copy(share, target)
        subprocess.run(["sync", *(target / s.parent.name / s.name for s in share)], check=True)

    with ThreadPoolExecutor(parts) as pool:
        list(pool.map(one, [sources[k::parts] for k in range(parts) if sources[k::parts]]))
    fsync_directory(target)


def publish_all(sources: Sequence[Path], tokens: int, target: Path, threads: int) -> None:
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda item: publish_one(item[1], item[0], tokens, target), enumerate(sources)))
    fsync_directory(target)


def publish_one(source: Path, index: int, tokens: int, target: Path) -> None:
    with source.open("rb") as file:
        head = file.read(1 << 16)
    publish(
        Publication(
            source=source, dump=parse_header(head[: LENGTH_BYTES + header_length(head)]), meta=meta_of(index, tokens),
            run=RUN, index=index, id=f"id-{index}", ids=array.array("q", range(tokens)).tobytes(),
            loss_mask=bytes(tokens), final=target / f"{index}.safetensors", mark="bench",
        ),
        lambda: None,
    )  # fmt: skip


def make_dump(directory: Path, index: int, tokens: int) -> Path:
    specs = layout(expected_tensors(tokens, len(LAYERS), HIDDEN, "post", "bfloat16"))
    path = directory / RequestId(RUN, index, 1 << 32, 0).directory / DUMP_FILE
    path.parent.mkdir()
    with path.open("wb") as file:
        file.write(build_header(specs, meta_of(index, tokens).to_metadata()))
        for spec in specs:
            ids = array.array("q", range(tokens)).tobytes()
            file.write(ids if spec.name == INPUT_IDS else os.urandom(spec.end - spec.begin))
    return path


def meta_of(index: int, tokens: int) -> DumpMeta:
    return DumpMeta(
        rid=str(RequestId(RUN, index, 1 << 32, 0)), num_tokens=tokens, prefix_len=0, chunks=(tokens,), layers=LAYERS,
        layers_asked=LAYERS, layers_held=LAYERS, norm="post", dtype="bfloat16", nonfinite=(), model="bench",
        server="bench", engine="bench",
    )  # fmt: skip


if __name__ == "__main__":
    main()
