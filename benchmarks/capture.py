"""What capturing and publishing cost a server: tokens a second beside prefill alone, in the same run.

    python benchmarks/capture.py --url http://127.0.0.1:30000 --dump-dir /dev/shm/hs0 --out /dev/shm/bench

For each workload: prefill alone, then ``hsqueue run`` on the same prompts, then prefill alone again, all on the one
running server, whose capture plugin writes to `--dump-dir`. Requests of prefill alone carry ids that the plugin does
not capture. The rate of the run is taken from the middle of it, by the times at which its files were written.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import requests
from arguments import parser

from hsqueue.planning.target import read_card

FIRST_ORDINARY_ID = 100
TRIM = 0.15
"""Share of a run's tokens left out at either end, where the pipeline fills and empties."""


@dataclass(frozen=True)
class Workload:
    """lengths: tokens of each prompt."""

    name: str
    lengths: tuple[int, ...]
    in_flight: int


@dataclass(frozen=True)
class Figures:
    """alone: prefill only, tokens/s, before and after. captured: tokens/s of ``hsqueue run``. ratio: of the two."""

    workload: str
    prompts: int
    tokens: int
    in_flight: int
    alone: tuple[float, float]
    captured: float
    ratio: float


def workloads(tokens: int, longest: int) -> list[Workload]:
    """About `tokens` tokens each: 2048, 512, and a log-normal mix of 16 to 8000, mean about 800."""
    dice = random.Random(3)
    mix: list[int] = []
    while sum(mix) < tokens:
        length = round(math.exp(dice.gauss(6.2, 0.95)))
        if 16 <= length <= min(8000, longest):
            mix.append(length)
    return [
        Workload("2048", (2048,) * (tokens // 2048), 32),
        Workload("512", (512,) * (tokens // 512), 64),
        Workload("mix", tuple(mix), 64),
    ]


def prompts_of(workload: Workload, vocabulary: int) -> list[list[int]]:
    dice = random.Random(7)
    return [[dice.randrange(FIRST_ORDINARY_ID, vocabulary) for _ in range(n)] for n in workload.lengths]


def prefill_alone(url: str, prompts: list[list[int]], in_flight: int, mark: str, tokens: int = 1 << 40) -> float:
    """Tokens a second over all of `prompts`, sent in their order. in_flight, tokens: at most so many at a time."""
    session = requests.Session()
    session.mount(url, requests.adapters.HTTPAdapter(pool_maxsize=in_flight))
    flying, turn = 0, threading.Condition()

    def ask(k: int) -> None:
        nonlocal flying
        size = len(prompts[k])
        with turn:
            turn.wait_for(lambda: flying == 0 or flying + size <= tokens)
            flying += size
        body = {"input_ids": prompts[k], "rid": f"alone-{mark}-{k}", "extra_key": f"{mark}-{k}",
                "sampling_params": {"max_new_tokens": 0, "temperature": 0}}  # fmt: skip
        session.post(f"{url}/generate", json=body, timeout=600).raise_for_status()
        with turn:
            flying -= size
            turn.notify_all()

    with ThreadPoolExecutor(in_flight) as pool:
        began = time.monotonic()
        list(pool.map(ask, range(len(prompts))))
        return sum(map(len, prompts)) / (time.monotonic() - began)


def captured(url: str, dump_dir: Path, prompts: list[list[int]], in_flight: int, out: Path) -> float:
    """Tokens a second of ``hsqueue run`` in its middle part."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    source = out / "prompts.jsonl"
    with source.open("w") as file:
        for k, ids in enumerate(prompts):
            file.write(json.dumps({"id": f"{k}", "input_ids": ids}) + "\n")
    run = out / "run"
    command = [sys.executable, "-m", "hsqueue", "run", str(source), "--out", str(run), "--engine", url,
               "--dump-dir", str(dump_dir), "--shard-size", str(max(32, len(prompts) // 8))]  # fmt: skip
    environment = {**os.environ, "HSQ_MAX_IN_FLIGHT": str(in_flight)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"hsqueue run ended with status {done.returncode}:\n{done.stdout}{done.stderr}")
    stamped = sorted(
        (path.stat().st_mtime, len(prompts[int(path.stem)])) for path in run.glob("samples/*/*/*.safetensors")
    )
    shutil.rmtree(out)
    return middle_rate(stamped)


def middle_rate(stamped: list[tuple[float, int]]) -> float:
    """Tokens a second between the moments at which the shares TRIM and 1 - TRIM of all tokens were there."""
    total, so_far = sum(n for _, n in stamped), 0
    begin = end = (stamped[0][0], 0)
    for moment, tokens in stamped:
        so_far += tokens
        if so_far <= TRIM * total:
            begin = (moment, so_far)
        if so_far <= (1 - TRIM) * total:
            end = (moment, so_far)
    return (end[1] - begin[1]) / (end[0] - begin[0])


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--url", required=True)
    made.add_argument("--dump-dir", type=Path, required=True)
    made.add_argument("--out", type=Path, required=True, help="A fast volume; what is published there is removed.")
    made.add_argument("--tokens", type=int, default=800_000, help="Tokens of each workload.")
    arguments = made.parse_args()
    card = read_card(arguments.dump_dir)
    found = []
    for workload in workloads(arguments.tokens, card.context_length):
        prompts = prompts_of(workload, card.vocab_size)
        prefill_alone(arguments.url, prompts[: 2 * workload.in_flight], workload.in_flight, "warm")
        before = prefill_alone(arguments.url, prompts, workload.in_flight, f"{workload.name}-before")
        rate = captured(arguments.url, arguments.dump_dir, prompts, workload.in_flight, arguments.out)
        after = prefill_alone(arguments.url, prompts, workload.in_flight, f"{workload.name}-after")
        figures = Figures(
            workload.name, len(prompts), sum(map(len, prompts)), workload.in_flight, (round(before), round(after)),
            round(rate), round(2 * rate / (before + after), 3),
        )  # fmt: skip
        found.append(figures)
        print(figures, flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(figures) for figures in found], indent=1))


if __name__ == "__main__":
    main()
