"""The main job on this machine, with one worker killed half way: what ``make demo`` runs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import redis

from hsqueue.contracts.errors import HsqueueError
from hsqueue.ledger.keys import WORKERS
from hsqueue.ledger.ledger import Ledger
from hsqueue.local.redis import running_url
from hsqueue.planning.plan import load_run
from hsqueue.store.layout import RunLayout

HERE = Path(__file__).parent
PROMPTS = HERE / "gsm8k-256.jsonl"
LIMIT_SECONDS = 300.0


def main(out: Path) -> int:
    shutil.rmtree(out, ignore_errors=True)
    command = [
        sys.executable, "-m", "hsqueue", "run", str(PROMPTS), "--out", str(out), "--engines", "2", "--shard-size", "16",
        "--deep",
    ]  # fmt: skip
    print(f"$ hsqueue {' '.join(command[3:])}".replace(f"{Path.cwd()}/", ""), flush=True)
    # A short lease, so that what a dead worker held is free again in seconds.
    run = subprocess.Popen(command, env={**os.environ, "HSQ_LEASE_TTL": "5", "HSQ_REQUEUE_GRACE": "5"})
    victim = kill_one_worker_half_way(run, out)
    status = run.wait(LIMIT_SECONDS)
    if status != 0 or victim is None:
        print(f"the demonstration failed (status {status}, worker killed: {victim}); see {out}/logs")
        return status or 1
    here, tools = _short(out), _short(Path(sys.executable).parent)
    arguments = " ".join(_short(Path(word)) if word.startswith("/") else word for word in command[3:])
    size = sum(path.stat().st_size for path in out.glob("samples/**/*.safetensors"))
    print(f"""
What happened: 256 conversations were planned into shards and queued; two workers, each pinned to its own small
engine, asked for every prompt's hidden states. Worker {victim} was killed with kill -9 half way. Its work was taken
over, nothing was lost, nothing was published twice, and every byte of every file was then read and checked.

Where it is:     {here}/samples, one safetensors file a conversation, {size / 2**20:.0f} MiB
Look at it:      {tools}/python examples/read_samples.py {here}
Check it again:  {tools}/hsqueue verify {here} --deep
Run it again:    {tools}/hsqueue {arguments}
                 finds everything done and sends no request
Next:            your own prompts and SGLang servers, see "On a cluster" in README.md
""")
    return 0


def _short(path: Path) -> str:
    """As one would type it from here."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def kill_one_worker_half_way(run: subprocess.Popen[bytes], out: Path) -> str | None:
    """Kills the worker that holds a lease when half of the samples have ended. Returns its name."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while run.poll() is None and time.monotonic() < deadline:
        url = running_url(RunLayout(out).redis)
        if url is not None and (name := _try_kill(url, out)) is not None:
            return name
        time.sleep(0.05)
    return None


def _try_kill(url: str, out: Path) -> str | None:
    try:
        info = load_run(out)
        client = redis.Redis.from_url(url, decode_responses=True)
        ledger = Ledger(client, url, info.run)
        counts = ledger.counts(info.samples)
        if counts.done < info.samples // 2:
            return None
        busy = {owner.split(":", 1)[0] for owner in ledger.holders().values()}
        for name, text in client.hgetall(WORKERS).items():
            if name in busy:
                pid = int(json.loads(text)["pid"])
                print(f"half way: kill -9 of worker {name}, process {pid}", flush=True)
                os.kill(pid, signal.SIGKILL)
                return name
    except (HsqueueError, redis.RedisError):
        return None
    return None


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1].startswith("-"):
        sys.exit("usage: demo.py [DIRECTORY]")
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-run").resolve()))
