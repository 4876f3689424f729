"""Two workers, each with an engine and a way to Redis of its own, that serve one run after another.

Everything is a real process on the loopback interface. Who died is started again by ``tend``, as systemd or
Kubernetes would.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.rebuild import reconcile
from hsqueue.planning.plan import load_run
from hsqueue.queue.app import make_app
from hsqueue.queue.producer import enqueue
from hsqueue.store.layout import RunLayout
from hsworker.budget import Budget
from hsworker.engine import EngineClient
from hsworker.turns import Limits
from tests.chaos.gated import Gate
from tests.chaos.operations.network import Proxy, start_proxy
from tests.chaos.operations.processes import Find, main_of, tree_of
from tests.support.cli import hsqueue
from tests.support.engine import Engine, environment, start_engine
from tests.support.prompts import token_prompts
from tests.support.redis import RedisServer, free_port
from tests.support.waiting import await_true

LEASE = 3.0
SETTINGS = {
    "HSQ_LEASE_TTL": str(LEASE), "HSQ_REQUEUE_GRACE": "2", "HSQ_DUMP_TIMEOUT": "5", "HSQ_REQUEST_TIMEOUT": "20",
    "HSQ_MAX_IN_FLIGHT": "4", "HSQ_COMMIT_EVERY": "0.1",
}  # fmt: skip
PATIENCE = 120.0


@dataclass(slots=True)
class Node:
    """One engine with its worker. to_engine, to_redis: relays that only this worker uses."""

    name: str
    directory: Path
    engine: Engine
    to_engine: Proxy
    to_redis: Proxy
    gate: Path
    password: str
    worker: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.directory / f"{self.name}.worker.log"

    @property
    def processes(self) -> Find:
        """The worker's main process and its children."""
        return tree_of(main_of(lambda: self.worker))

    def tend(self) -> None:
        """Starts again what has died."""
        if self.engine.process.poll() is not None:
            self.engine = start_engine(self.directory, port=self.engine.port, name=self.name)
        if self.worker is None or self.worker.poll() is not None:
            redis = f"redis://:{self.password}@127.0.0.1:{self.to_redis.port}/0"
            with self.log.open("ab") as output:
                self.worker = subprocess.Popen(
                    [
                        sys.executable, "-m", "tests.chaos.gated", self.gate, "worker", "--name", self.name,
                        "--engine", f"http://127.0.0.1:{self.to_engine.port}", "--dump-dir", self.engine.dump_dir,
                    ],
                    stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True,
                    env={**environment(), **SETTINGS, "HSQ_REDIS_URL": redis},
                )  # fmt: skip

    def is_at_rest(self) -> bool:
        """Whether the engine answers, and no child works at a shard, or waits to."""
        budget = self.engine.dump_dir / ".hsqueue" / "budget"
        return EngineClient(self.engine.url).alive() and not (
            budget.exists() and Budget(budget, Limits(1, 1, 1)).slots()
        )

    def is_paused(self) -> bool:
        return (self.engine.dump_dir / ".hsqueue" / "paused").exists()

    def stop(self) -> None:
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if self.worker is not None:
            self.worker.wait()
        self.engine.kill()
        self.to_engine.stop()
        self.to_redis.stop()


@dataclass(slots=True)
class Run:
    """A run under way. asked: requests that each engine had logged when the run's ``mark`` was set."""

    root: Path
    ledger: Ledger
    samples: int
    standing: dict[int, tuple[int, int]] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)

    def files(self) -> dict[int, tuple[int, int]]:
        """Index -> (inode, mtime in ns) of what is published."""
        found = {}
        for path in self.root.glob("samples/*/*/[0-9]*.safetensors"):
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                found[int(path.stem)] = (status.st_ino, status.st_mtime_ns)
        return found


@dataclass(slots=True)
class Pair:
    """volume: a file system that the runs have to themselves."""

    directory: Path
    volume: Path
    redis: RedisServer
    nodes: tuple[Node, ...]
    gate: Gate
    runs: int = 0

    def start(self, lengths: Sequence[int], shard_size: int) -> Run:
        """Plans a run and sends its shards."""
        self.runs += 1
        root = self.volume / f"run{self.runs}"
        prompts = token_prompts(self.directory / "prompts.jsonl", lengths, seed=self.runs)
        planned = hsqueue(
            "plan", prompts, "--out", root, "--shard-size", str(shard_size), "--dump-dir", self.nodes[0].engine.dump_dir
        )
        assert planned.status == 0, planned.text
        info, layout = load_run(root), RunLayout(root)
        ledger = reconcile(self.redis.client(), self.redis.url, layout, info).ledger
        enqueue(make_app(self.redis.url), ledger, info)
        return Run(root, ledger, len(lengths))

    def held_at_gate(self) -> tuple[Node, int]:
        """The node whose worker stands at the gate, and the process that does."""
        self.wait_for(lambda: self.gate.held() is not None, "nobody comes to the gate")
        pid = self.gate.held()
        assert pid is not None
        for node in self.nodes:
            if any(process.pid == pid for process in node.processes()):
                return node, pid
        raise AssertionError(f"process {pid} at the gate belongs to no worker")

    def mark(self, run: Run) -> None:
        """Notes what stands now."""
        run.standing = run.files()
        run.asked = {node.name: len(node.engine.asked()) for node in self.nodes}

    def asked_again(self, run: Run) -> set[int]:
        """Samples that stood at the mark and were asked for after it."""
        found = set()
        for node in self.nodes:
            log = node.engine.asked()
            before = run.asked[node.name]
            # An engine that was started again since has a new log.
            for rid, _ in log[before:] if len(log) >= before else log:
                parts = rid.split(".")
                if parts[1] == run.ledger.run and int(parts[2]) in run.standing:
                    found.add(int(parts[2]))
        return found

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Tends the nodes meanwhile."""

        def tend() -> None:
            for node in self.nodes:
                node.tend()

        await_true(condition, lambda: f"{what}\n{self.tails()}", PATIENCE, meanwhile=tend)

    def tails(self) -> str:
        return "\n".join(f"--- {node.name}\n{node.log.read_text()[-3000:]}" for node in self.nodes)


@contextlib.contextmanager
def pair(directory: Path, volume: Path, redis: RedisServer) -> Iterator[Pair]:
    gate = Gate(directory)
    nodes: list[Node] = []
    try:
        for name in ("a", "b"):
            engine = start_engine(directory, name=name)
            to_engine = start_proxy("127.0.0.1", free_port(), "127.0.0.1", engine.port)
            to_redis = start_proxy("127.0.0.1", free_port(), "127.0.0.1", redis.port)
            nodes.append(Node(name, directory, engine, to_engine, to_redis, directory, redis.password))
            nodes[-1].tend()
        yield Pair(directory, volume, redis, tuple(nodes), gate)
    finally:
        for node in nodes:
            node.stop()
