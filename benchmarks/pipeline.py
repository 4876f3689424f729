"""The whole path on this machine: embedded Redis, embedded engines, pinned workers, publishing and ledger.

    python benchmarks/pipeline.py [--samples 2000] [--engines 1] [--json FILE]

Beside the run stands its own bound, measured in the same run: the same prompts sent straight to one embedded
engine with nothing captured, matched or published. Processor seconds and peak memory are the worker's alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
import requests
from arguments import parser

from hsqueue.planning.plan import load_run
from hsqueue.planning.shards import read_shard
from hsqueue.store.layout import RunLayout

IN_FLIGHT = 64


@dataclass(frozen=True)
class Figures:
    """samples, tokens: extracted. samples_per_s, tokens_per_s: from the first published file to the last.
    engine_alone_tokens_per_s: the same prompts on one engine that captures nothing, times `engines`.
    of_engine: the ratio of the two. worker_cpu_s_per_sample, worker_peak_mib: of all worker processes together.
    """

    samples: int
    tokens: int
    engines: int
    samples_per_s: float
    tokens_per_s: float
    engine_alone_tokens_per_s: float
    of_engine: float
    worker_cpu_s_per_sample: float
    worker_peak_mib: float


class WorkerMeter(threading.Thread):
    """Follows the worker processes below `root`: processor seconds, and the sum of their memory at its peak."""

    def __init__(self, root: psutil.Process) -> None:
        super().__init__(daemon=True)
        self.root = root
        self.seconds: dict[int, float] = {}
        self.peak = 0
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.wait(0.1):
            total = 0
            for process in self._workers():
                try:
                    used = process.cpu_times()
                    self.seconds[process.pid] = used.user + used.system
                    total += process.memory_full_info().uss
                except psutil.Error:
                    continue
            self.peak = max(self.peak, total)

    def _workers(self) -> list[psutil.Process]:
        try:
            family = self.root.children(recursive=True)
            heads = [p for p in family if "worker" in p.cmdline()[:5]]
            return heads + [child for head in heads for child in head.children(recursive=True)]
        except psutil.Error:
            return []


def extract(prompts: Path, root: Path, engines: int) -> tuple[float, WorkerMeter]:
    """Seconds from the first published file to the last."""
    command = [sys.executable, "-m", "hsqueue", "run", str(prompts), "--out", str(root), "--engines", str(engines),
               "--shard-size", "256"]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    meter = WorkerMeter(psutil.Process(process.pid))
    meter.start()
    status = process.wait()
    meter.done.set()
    meter.join()
    if status:
        raise SystemExit(f"the run ended with status {status}; see {root}/logs")
    times = sorted(path.stat().st_mtime for path in root.glob("samples/*/*/*.safetensors"))
    return times[-1] - times[0], meter


def engine_alone(prompts: list[list[int]], directory: Path) -> float:
    """Tokens a second of one engine that dumps nothing, the same number of requests in flight."""
    ready = directory / "ready"
    engine = subprocess.Popen(
        [sys.executable, "-m", "hsengine", "--dump-dir", str(directory / "dumps"), "--ready-file", str(ready)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        while not ready.exists():
            time.sleep(0.1)
        url = json.loads(ready.read_text())["url"]
        session = requests.Session()
        session.mount(url, requests.adapters.HTTPAdapter(pool_maxsize=IN_FLIGHT))

        def ask(ids: list[int]) -> None:
            body = {"input_ids": ids, "sampling_params": {"max_new_tokens": 0}}
            session.post(f"{url}/generate", json=body, timeout=600).raise_for_status()

        with ThreadPoolExecutor(IN_FLIGHT) as pool:
            list(pool.map(ask, prompts[:IN_FLIGHT]))
            began = time.monotonic()
            list(pool.map(ask, prompts))
            return sum(map(len, prompts)) / (time.monotonic() - began)
    finally:
        engine.kill()
        engine.wait()


def repeated(source: Path, target: Path, count: int) -> Path:
    rows = [json.loads(line) for line in source.read_text().splitlines()]
    with target.open("w") as file:
        for k in range(count):
            file.write(json.dumps({**rows[k % len(rows)], "id": f"{k}"}) + "\n")
    return target


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--samples", type=int, default=2000)
    made.add_argument("--engines", type=int, default=1)
    arguments = made.parse_args()
    examples = Path(__file__).resolve().parents[1] / "examples" / "gsm8k-256.jsonl"
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        prompts = repeated(examples, directory / "prompts.jsonl", arguments.samples)
        root = directory / "run"
        seconds, meter = extract(prompts, root, arguments.engines)
        info, layout = load_run(root), RunLayout(root)
        shards = [read_shard(layout.plan_shard(shard)) for shard in range(info.shards)]
        alone = engine_alone([s.input_ids.tolist() for shard in shards for s in shard], directory)
    bound = alone * arguments.engines
    figures = Figures(
        samples=info.samples, tokens=info.tokens, engines=arguments.engines,
        samples_per_s=round(info.samples / seconds, 1), tokens_per_s=round(info.tokens / seconds),
        engine_alone_tokens_per_s=round(bound), of_engine=round(info.tokens / seconds / bound, 3),
        worker_cpu_s_per_sample=round(sum(meter.seconds.values()) / info.samples, 5),
        worker_peak_mib=round(meter.peak / 2**20, 1),
    )  # fmt: skip
    for field, value in asdict(figures).items():
        print(f"{field:28} {value}")
    print(f"{'processors':28} {os.cpu_count()}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(asdict(figures), indent=1))


if __name__ == "__main__":
    main()
