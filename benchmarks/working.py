"""`hsqueue worker` on a prepared run, beside a server that is up: how fast, and at what cost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from capture import prefill_alone
from checking import Checker
from prepared import WARM_UP, Prepared
from processes import cpu_seconds, memory_bytes
from queued import known, queue, redis_in

from hsqueue.ledger.ledger import Ledger
from hsqueue.local.processes import die_with_parent
from hsqueue.planning.plan import load_run
from hsworker.engine import EngineClient


@dataclass(frozen=True)
class Window:
    """What happened in the time that counts. cpu: seconds. memory: bytes."""

    seconds: float
    tokens: int
    samples: int
    cpu: float
    memory: int

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds


def await_server(url: str) -> None:
    """Until it answers a prompt; it answers other questions before."""
    client = EngineClient(url)
    while not client.alive():
        time.sleep(0.5)
    prefill_alone(url, [[5, 6, 7]], 1, "ready")


def start_worker(
    log: Path, url: str, dump_dir: Path, redis_url: str, settings: Mapping[str, str], name: str = "gpu0"
) -> subprocess.Popen[bytes]:
    """settings: ``HSQ_*`` variables. log: gets its output, after what is there."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [
                sys.executable, "-m", "hsqueue", "worker", "--engine", url, "--dump-dir", dump_dir, "--name", name,
            ],
            env={**os.environ, "HSQ_REDIS_URL": redis_url, **settings}, stdout=output, stderr=output,
            preexec_fn=die_with_parent,
        )  # fmt: skip


def run_worker(one: Prepared, url: str, dump_dir: Path, in_flight: int, seconds: float) -> tuple[Window, Checker]:
    """Goes on with the run where another worker left it, with a Redis of its own."""
    info, log = load_run(one.run), one.root / "worker.log"
    with redis_in(one.root / f"redis-{in_flight}") as redis:
        ledger = known(one.run, info, redis.url)
        queue(ledger, info)
        worker = start_worker(log, url, dump_dir, redis.url, {"HSQ_MAX_IN_FLIGHT": str(in_flight)})
        checker = Checker(one.run)
        try:
            window = watch(ledger, info.samples, seconds, worker)
        except BaseException:
            print(log.read_text()[-3000:])
            raise
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(60)
            checker.finish()
    return window, checker


def worker_rate(one: Prepared, url: str, dump_dir: Path, in_flight: int, seconds: float) -> float:
    """Tokens/s, where every file that was checked is right."""
    window, checker = run_worker(one, url, dump_dir, in_flight, seconds)
    if checker.wrong:
        raise SystemExit(f"wrong files: {checker.wrong[:3]}")
    return window.rate


def watch(ledger: Ledger, samples: int, seconds: float, worker: subprocess.Popen[bytes]) -> Window:
    def done() -> tuple[int, int]:
        if worker.poll() is not None:
            raise SystemExit(f"the worker ended with status {worker.returncode}")
        counts = ledger.counts(samples)
        return counts.tokens, counts.done

    while not done()[0]:
        time.sleep(0.1)
    time.sleep(WARM_UP)
    began, first, cpu, memory = time.monotonic(), done(), cpu_seconds(worker.pid), 0
    while time.monotonic() - began < seconds:
        time.sleep(min(1.0, seconds))
        memory = max(memory, memory_bytes(worker.pid))
        if ledger.counts(samples).pending == 0:
            raise SystemExit("the prompts did not last; give a higher --rate")
    last = done()
    return Window(
        time.monotonic() - began, last[0] - first[0], last[1] - first[1], cpu_seconds(worker.pid) - cpu, memory
    )
