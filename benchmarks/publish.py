"""Publishing dumps, from /dev/shm to a disk with checksum, fsync and link, beside `cp` of the same files.

    python benchmarks/publish.py DIRECTORY [--megabytes 64] [--files 32] [--rounds 5] [--threads 8] [--json FILE]

DIRECTORY lies on the volume to be measured. Each round does all of it, one after the other, on the same dumps: `cp`;
`cp` and `sync`; publishing by the worker's own code in as many threads as a worker has, and the directory's sync that
a commit waits for. Medians are reported, with the processor seconds of publishing beside those of `cp`.
"""

from __future__ import annotations

import argparse
import array
import json
import os
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hsqueue.contracts.dump import DUMP_FILE, INPUT_IDS, DumpMeta, expected_tensors
from hsqueue.contracts.rid import RequestId
from hsqueue.contracts.tensorfile import LENGTH_BYTES, build_header, header_length, layout, parse_header
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--megabytes", type=float, default=64, help="of one dump")
    parser.add_argument("--files", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--json", type=Path, default=None, help="writes the figures to this file as well")
    options = parser.parse_args()
    tokens = max(1, round(options.megabytes * (1 << 20) / BYTES_PER_TOKEN))
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as dumps,
        tempfile.TemporaryDirectory(dir=options.directory) as volume,
    ):
        sources = [make_dump(Path(dumps), index, tokens) for index in range(options.files)]
        figures = measure(sources, tokens, Path(volume), options.rounds, options.threads)
    print(json.dumps(figures, indent=1))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


def measure(sources: Sequence[Path], tokens: int, volume: Path, rounds: int, threads: int) -> dict[str, Any]:
    total = sum(path.stat().st_size for path in sources)
    copied, synced, published = Seconds(), Seconds(), Seconds()
    for _ in range(rounds):
        for seconds, sync in ((copied, False), (synced, True)):
            target = fresh(volume)
            timed(seconds, lambda target=target, sync=sync: copy(sources, target, sync))
        target = fresh(volume)
        timed(published, lambda target=target: publish_all(sources, tokens, target, threads))
    fresh(volume)
    wall = {
        name: statistics.median(s.wall) for name, s in (("cp", copied), ("cp+sync", synced), ("publish", published))
    }
    return {
        "files": len(sources), "bytes": total, "rounds": rounds, "threads": threads,
        "seconds_median": {name: round(value, 3) for name, value in wall.items()},
        "bytes_per_s": {name: round(total / value) for name, value in wall.items()},
        "publish_over_cp": round(wall["cp"] / wall["publish"], 3),
        "publish_over_cp_and_sync": round(wall["cp+sync"] / wall["publish"], 3),
        "processor_ms_a_file": {
            name: round(statistics.median(s.processor) / len(sources) * 1000, 3)
            for name, s in (("cp", copied), ("publish", published))
        },
    }  # fmt: skip


def timed(seconds: Seconds, work: Any) -> None:
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
    """An empty directory, with nothing left to be written of what lay there before."""
    for path in volume.iterdir():
        shutil.rmtree(path)
    os.sync()
    target = volume / "samples"
    target.mkdir()
    return target


def copy(sources: Sequence[Path], target: Path, sync: bool) -> None:
    """One cp for all, each file under a name of its own."""
    names = [source.parent for source in sources]
    subprocess.run(["cp", "-r", *names, target], check=True)
    if sync:
        os.sync()


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
