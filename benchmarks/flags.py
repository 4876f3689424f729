"""Which of SGLang's flags serve extraction best: a server for each set of them, one after the other on one GPU.

    python benchmarks/flags.py --out DIRECTORY [--only NAME ...] -- --model-path MODEL [SGLang's options that all share]

For each set: prefill alone on the mix of lengths and on prompts of 2048 tokens, then `hsqueue worker` on the mix, as
benchmarks/steady.py measures it. `--out` is the volume; what is published there is removed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from arguments import RATE, add_volume, parser
from capture import prefill_alone
from machine import write_result
from prepared import Prepared, await_card, prepare
from working import await_server, worker_rate

from hsqueue.settings import Settings


@dataclass(frozen=True)
class Variant:
    flags: tuple[str, ...] = ()
    writers: int = 2


VARIANTS = {
    "default": Variant(),
    "1 writer": Variant(writers=1),
    "4 writers": Variant(writers=4),
    "chunk 4096": Variant(("--chunked-prefill-size", "4096")),
    "chunk 16384": Variant(("--chunked-prefill-size", "16384")),
    "chunk 32768": Variant(("--chunked-prefill-size", "32768", "--max-prefill-tokens", "32768")),
    "no radix cache": Variant(("--disable-radix-cache",)),
    "no overlap": Variant(("--disable-overlap-schedule",)),
}


@dataclass(frozen=True)
class Figures:
    """alone: prefill only, tokens/s, by workload. worker: tokens/s on the mix. ratio: of it to prefill alone."""

    variant: str
    alone: dict[str, int]
    worker: int
    ratio: float


def main() -> None:
    made = parser(__doc__)
    add_volume(made)
    made.add_argument("--dump-dir", type=Path, default=Path("/dev/shm/hsq-flags"))
    made.add_argument("--only", nargs="*", default=list(VARIANTS), choices=list(VARIANTS))
    made.add_argument("--seconds", type=float, default=12.0)
    made.add_argument("--port", type=int, default=30100)
    made.add_argument("sglang", nargs="*")
    options = made.parse_args()
    found: list[Figures] = []
    for name in options.only:
        with server(VARIANTS[name], options) as url:
            prepared = prepare(options.out, options.dump_dir, ("2048", "mix"), RATE, options.seconds)
            await_server(url)
            found.append(measure(name, {one.workload.name: one for one in prepared}, url, options))
        print(found[-1], flush=True)
        if options.json is not None:
            write_result(options.json, [asdict(figures) for figures in found], options.out)


@contextmanager
def server(variant: Variant, options: argparse.Namespace) -> Iterator[str]:
    """Its URL, once its card is there."""
    shutil.rmtree(options.dump_dir, ignore_errors=True)
    options.dump_dir.mkdir(parents=True)
    environment = {**os.environ, "HSQ_DUMP_DIR": str(options.dump_dir), "HSQ_WRITERS": str(variant.writers)}
    command = [
        sys.executable,
        "-m",
        "sglang.launch_server",
        *options.sglang,
        *variant.flags,
        "--port",
        f"{options.port}",
    ]
    log = options.out / "server.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=file, start_new_session=True)
    try:
        await_card(options.dump_dir)
        yield f"http://127.0.0.1:{options.port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        time.sleep(2)
        shutil.rmtree(options.dump_dir, ignore_errors=True)


def measure(name: str, prepared: dict[str, Prepared], url: str, options: argparse.Namespace) -> Figures:
    limits = Settings().max_in_flight, Settings().max_tokens_in_flight
    alone = {}
    for workload, one in prepared.items():
        few = one.first()
        prefill_alone(url, few[: len(few) // 4], limits[0], f"{workload}-warm", limits[1])
        alone[workload] = prefill_alone(url, few, limits[0], f"{workload}-alone", limits[1])
    rate = worker_rate(prepared["mix"], url, options.dump_dir, limits[0], options.seconds)
    for one in prepared.values():
        shutil.rmtree(one.root)
    return Figures(name, {w: round(r) for w, r in alone.items()}, round(rate), round(rate / alone["mix"], 3))


if __name__ == "__main__":
    main()
