"""Prompts of each kind, planned as a run; only the server's card has to be there for it."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from capture import Workload, prompts_of, workloads

from hsqueue.planning.target import read_card

ALONE_TOKENS = 1_300_000
"""For prefill alone."""
SHARD_TOKENS = 130_000
WARM_UP = 8.0
"""Seconds after the first tokens are done that are left out."""
MARGIN = 1.15


@dataclass(frozen=True)
class Prepared:
    workload: Workload
    prompts: list[list[int]]
    root: Path
    shard_size: int

    @property
    def run(self) -> Path:
        return self.root / "run"

    def first(self) -> list[list[int]]:
        """ALONE_TOKENS' worth of prompts, in the order in which a worker sends them."""
        begins = range(0, len(self.prompts), self.shard_size)
        shards = (self.prompts[begin : begin + self.shard_size] for begin in begins)
        sent = [prompt for shard in shards for prompt in sorted(shard, key=len, reverse=True)]
        ends = itertools.accumulate(map(len, sent))
        return [prompt for prompt, end in zip(sent, ends, strict=True) if end - len(prompt) < ALONE_TOKENS]


def prepare(out: Path, dump_dir: Path, names: Sequence[str], rate: float, seconds: float) -> list[Prepared]:
    """Prompts that last `seconds`, with some to spare, at `rate` tokens/s. names: of the workloads."""
    await_card(dump_dir)
    card = read_card(dump_dir)
    tokens = round(rate * (seconds + 2 * WARM_UP) * MARGIN)
    chosen = [workload for workload in workloads(tokens, card.context_length) if workload.name in names]
    return [_plan(workload, prompts_of(workload, card.vocab_size), out, dump_dir) for workload in chosen]


def await_card(dump_dir: Path) -> None:
    while not (dump_dir / "engine.json").exists():
        time.sleep(0.5)


def _plan(workload: Workload, prompts: list[list[int]], out: Path, dump_dir: Path) -> Prepared:
    size = max(8, SHARD_TOKENS * len(prompts) // sum(map(len, prompts)))
    one = Prepared(workload, prompts, out / workload.name, size)
    shutil.rmtree(one.root, ignore_errors=True)
    one.root.mkdir(parents=True)
    source = one.root / "prompts.jsonl"
    with source.open("w") as file:
        file.writelines(f'{{"id": "{k}", "input_ids": {ids}}}\n' for k, ids in enumerate(prompts))
    subprocess.run(
        [
            sys.executable, "-m", "hsqueue", "plan", source, "--out", one.run, "--shard-size", str(size),
            "--dump-dir", dump_dir,
        ],
        check=True,
    )  # fmt: skip
    return one
