"""How long a report takes over very many manifests, on a run that has nothing but them.

    python benchmarks/report.py [--shards 100000] [--samples 100] [--directory DIR] [--json FILE]

--samples: of a shard. Lengths are log-normal; one sample in 250 failed or was skipped; four workers, leases taken over.
"""

from __future__ import annotations

import json
import random
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from arguments import parser
from machine import write_result

from hsqueue.contracts.fingerprint import Fingerprint, RunInfo
from hsqueue.contracts.meters import STAGES
from hsqueue.contracts.sample import Ending, GivenUp, Published
from hsqueue.contracts.work import Work
from hsqueue.report.gather import gather
from hsqueue.report.page import page
from hsqueue.store.layout import RunLayout
from hsqueue.store.manifest import make_manifest

WORKERS = ("gpu0@node1", "gpu1@node1", "gpu0@node2", "gpu1@node2")


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--shards", type=int, default=100_000)
    made.add_argument("--samples", type=int, default=100, help="of a shard")
    made.add_argument("--directory", type=Path, default=None, help="where the run goes")
    options = made.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as place:
        layout = RunLayout(Path(place))
        info = make_run(layout, options.shards, options.samples)
        figures = measure(layout, info)
    print(json.dumps(figures, indent=1))
    if options.json:
        write_result(options.json, figures, options.directory)


def measure(layout: RunLayout, info: RunInfo) -> dict[str, Any]:
    began, processor = time.monotonic(), time.process_time()
    text = page(gather(layout, info, None))
    return {
        "shards": info.shards, "samples": info.samples, "seconds": round(time.monotonic() - began, 1),
        "processor seconds": round(time.process_time() - processor, 1), "page bytes": len(text.encode()),
        "peak memory MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }  # fmt: skip


def make_run(layout: RunLayout, shards: int, size: int) -> RunInfo:
    dice = random.Random(1)
    fingerprint = Fingerprint(
        model="/models/target", weights="w", layers=(2, 18, 33), norm="post", dtype="bfloat16", hidden_size=4096,
        vocab_size=150_000, tokenizer="t", chat_template="c", dataset="d", max_length=8192, min_loss_tokens=0,
        shard_size=size,
    )  # fmt: skip
    each = fingerprint.target.bytes_per_token
    clock = dict.fromkeys(WORKERS, 1.7e9)
    for shard in range(shards):
        worker = min(clock, key=lambda name: clock[name])
        lengths = [min(8192, max(16, int(dice.lognormvariate(6.6, 0.7)))) for _ in range(size)]
        first, lost = shard * size, dice.randrange(250) < size
        done = [Published(first + k, n, n * each + 2000, "f" * 32) for k, n in enumerate(lengths[lost:], int(lost))]
        given_up = [GivenUp(first, Ending.FAILED, 5, "DumpMissing", "no dump within 60 s")] if lost else []
        tokens = sum(d.tokens for d in done)
        begin, end = clock[worker], clock[worker] + tokens / 40_000
        work = Work().opened(worker, begin - 60) if dice.random() < 0.02 else Work()
        seconds = dict(zip(STAGES, (0.5 * size, 0.05 * size, 0.1 * size, 0.2), strict=True))
        work = work.opened(worker, begin).closed(end, len(done), tokens, seconds, {"RequestTimeout": 1}, False)
        clock[worker] = end
        path = layout.manifest(shard)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(
            make_manifest("bench", shard, (1 << 32) + shard, f"{worker}:/d", done, given_up, work).to_json()
        )
    return RunInfo("bench", 1.7e9, shards * size, shards, 0, fingerprint)


if __name__ == "__main__":
    main()
