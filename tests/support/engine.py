"""The embedded engine as a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from tests.support.waiting import await_true, lives


@dataclass(slots=True)
class Engine:
    """url: http://host:port. dump_dir: where it writes."""

    url: str
    port: int
    dump_dir: Path
    process: subprocess.Popen[bytes]

    def asked(self) -> list[tuple[str, int]]:
        """(rid, tokens) of every request since its start, in order."""
        found: dict[str, Any] = requests.get(f"{self.url}/hsq/requests", timeout=10).json()
        return [(one["rid"], one["tokens"]) for one in found["requests"]]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def start_engine(
    directory: Path, *options: str, misbehave: dict[str, object] | None = None, port: int = 0, name: str = "engine"
) -> Engine:
    """Starts an engine whose dumps go to `directory`/<name> and waits until it serves."""
    dump_dir, ready, log = directory / name, directory / f"{name}.ready", directory / f"{name}.log"
    dump_dir.mkdir(parents=True, exist_ok=True)
    ready.unlink(missing_ok=True)
    command = [
        sys.executable, "-m", "hsengine", "--port", str(port), "--dump-dir", str(dump_dir), "--ready-file", str(ready),
        "--die-with-parent", *options,
    ]  # fmt: skip
    if misbehave is not None:
        command += ["--misbehave", json.dumps(misbehave)]
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=environment())
    await_true(
        ready.exists, lambda: f"the engine was not ready in time:\n{log.read_text()[-2000:]}", pause=0.05,
        meanwhile=lives(process, log),
    )  # fmt: skip
    found = json.loads(ready.read_text())
    return Engine(found["url"], found["port"], dump_dir, process)


@contextlib.contextmanager
def engine(
    directory: Path, *options: str, misbehave: dict[str, object] | None = None, name: str = "engine"
) -> Iterator[Engine]:
    started = start_engine(directory, *options, misbehave=misbehave, name=name)
    try:
        yield started
    finally:
        started.kill()


def environment() -> dict[str, str]:
    """This process's environment with the packages under test importable in children."""
    root = Path(__file__).resolve().parents[2]
    paths = [str(root), str(root / "workers"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
