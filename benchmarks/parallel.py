"""Servers of two ranks on two GPUs: every prompt has one dump, and its states are as exact as those of one GPU.

    python benchmarks/exactness_inputs.py qwen3 MODEL PROMPTS --count 400 --longest 4000
    python benchmarks/parallel.py MODEL PROMPTS OUT [SGLang's options ...]

Starts a server for each kind at the same time, on the same GPUs: tensor parallel, data parallel, data parallel
attention, pipeline parallel. The last has to be refused; through the others goes ``hsqueue run``, one after the other,
and ``exactness.py`` compares. Exit status 0 where all is as it should be. Needs two GPUs with about 60 GiB free each.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

START_SECONDS = 300
COMPARED = 100
WORST_RATIO = 1.1
"""Mean distance to float32, over that of transformers in the same dtype."""
KINDS = {
    "tp": ("--tp-size", "2"),
    "dp": ("--dp-size", "2"),
    "dp-attention": ("--tp-size", "2", "--dp-size", "2", "--enable-dp-attention"),
    "pp": ("--pp-size", "2"),
}


@dataclass(frozen=True, slots=True)
class Server:
    """dump_dir: in memory. log: of all its processes."""

    kind: str
    url: str
    dump_dir: Path
    log: Path
    process: subprocess.Popen[bytes]

    def info(self) -> dict[str, Any]:
        found: dict[str, Any] = requests.get(f"{self.url}/server_info", timeout=30).json()
        return found

    def complaints(self) -> list[str]:
        lines = self.log.read_text(errors="replace").splitlines()
        return [line[:300] for line in lines if "no dump of" in line or "not capture" in line]


def start(kind: str, number: int, model: Path, out: Path, options: Sequence[str]) -> Server:
    # SGLang derives further ports by adding to this one.
    port, dump_dir, log = 31000 + 1000 * number, Path(f"/dev/shm/hsq-parallel-{kind}"), out / f"{kind}.log"
    command = [
        sys.executable, "-m", "sglang.launch_server", "--model-path", str(model), "--port", str(port),
        "--skip-tokenizer-init", "--disable-cuda-graph", "--mem-fraction-static", "0.4", "--max-total-tokens", "65536",
        *KINDS[kind], *options,
    ]  # fmt: skip
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env={**os.environ, "HSQ_DUMP_DIR": str(dump_dir)}
        )
    return Server(kind, f"http://127.0.0.1:{port}", dump_dir, log, process)


@contextlib.contextmanager
def servers(kinds: Sequence[str], model: Path, out: Path, options: Sequence[str]) -> Iterator[list[Server]]:
    started = [start(kind, number, model, out, options) for number, kind in enumerate(kinds)]
    try:
        yield started
    finally:
        for server in started:
            server.process.terminate()
        for server in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.process.wait(30)


def wait_until_ready(server: Server, deadline: float) -> str:
    """Empty, or why it does not serve."""
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            return f"it ended: {server.log.read_text(errors='replace')[-600:]}"
        if "ready to roll" in server.log.read_text(errors="replace"):
            return ""
        time.sleep(1)
    return "it was not ready in time"


def call(*arguments: object) -> str:
    """Standard output of a command. Raises RuntimeError where it fails."""
    done = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{arguments[:3]} failed: {(done.stdout + done.stderr)[-600:]}")
    return done.stdout


def check(server: Server, model: Path, prompts: Path, out: Path) -> dict[str, Any]:
    """What was found of one kind; `fault` is empty where it is right."""
    if server.kind == "pp":
        problem = str(server.info().get("hsq_problem"))
        return {"problem": problem, "fault": "" if "pipeline" in problem else "it is not refused"}
    run = out / server.kind
    call("-m", "hsqueue", "run", prompts, "--out", run, "--engine", server.url, "--dump-dir", server.dump_dir, "--deep")
    found: dict[str, Any] = json.loads(
        call(Path(__file__).with_name("exactness.py"), run, model, "--device", "cuda", "--count", COMPARED)
    )
    left = [path.name for path in server.dump_dir.glob("req_*")]
    faults = [
        *(["token ids differ"] if found["token_ids_equal"] != found["samples"] else []),
        *(["states are off"] if max(found["aux_ratio"], found["last_ratio"]) > WORST_RATIO else []),
        *([f"dumps were left: {left[:3]}"] if left else []),
        *server.complaints(),
    ]
    return {**found, "fault": "; ".join(faults)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("prompts", type=Path)
    parser.add_argument("out", type=Path, help="For runs and logs; on a file system with room.")
    parser.add_argument("--kinds", nargs="+", choices=sorted(KINDS), default=list(KINDS))
    arguments, options = parser.parse_known_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    faulty = False
    with servers(arguments.kinds, arguments.model, arguments.out, options) as started:
        deadline = time.monotonic() + START_SECONDS
        for server in started:
            fault = wait_until_ready(server, deadline)
            try:
                found = {"fault": fault} if fault else check(server, arguments.model, arguments.prompts, arguments.out)
            except Exception as error:
                found = {"fault": f"{type(error).__name__}: {error}"}
            faulty = faulty or bool(found["fault"])
            print(
                json.dumps(
                    {"kind": server.kind, "seconds": round(time.monotonic() - deadline + START_SECONDS), **found}
                )
            )
            sys.stdout.flush()
    return int(faulty)


if __name__ == "__main__":
    sys.exit(main())
