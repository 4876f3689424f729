"""A head node with Redis, GPU nodes each with an engine and pinned workers, and a shared volume; all real processes."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

from hsqueue.contracts.errors import RedisUnreachable
from hsqueue.ledger.keys import WORKERS
from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.records import Counts
from hsqueue.local.processes import die_with_parent
from hsqueue.planning.plan import load_run
from tests.chaos.cluster.namespaces import HEAD, Node, head_network, mounted, node
from tests.chaos.cluster.service import Service
from tests.chaos.operations.network import Proxy, start_proxy
from tests.chaos.operations.system import shimmed
from tests.support.cli import QUICK, Result, command, hsqueue
from tests.support.engine import environment
from tests.support.redis import RedisServer
from tests.support.waiting import await_true

ENGINE_PORT, ENGINE_RELAY, REDIS_PORT, REDIS_RELAY = 30000, 30001, 6379, 6380
DUMP_DIR = "/dev/shm/dumps"
PATIENCE = 120.0
SMALL_VOLUME = ("-t", "tmpfs", "-o", "size=128m", "tmpfs")
Share = Callable[[Sequence[str]], contextlib.AbstractContextManager[object]]
"""Mounts a shared volume where commands with that prefix run."""


@dataclass(frozen=True, slots=True)
class Shape:
    """workers: of each node; one has the engine, the others stand by. shared_memory: size of a node's /dev/shm.
    engine: more options of the engine. settings: ``HSQ_*`` of workers and commands. idle: nothing but Redis is
    started.
    """

    nodes: int = 2
    workers: int = 1
    shared_memory: str = "128m"
    engine: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=lambda: dict(QUICK))
    idle: bool = False


@dataclass(slots=True)
class GpuNode:
    """redis, engine_relay: relays on the node, through which its workers reach Redis and their engine.
    control: what ``operations.system`` writes for its workers. links: names that its workers have linked.
    """

    node: Node
    engine: Service
    workers: list[Service]
    redis: Proxy
    engine_relay: Proxy
    control: Path
    links: Path

    @property
    def dump_dir(self) -> Path:
        return self.node.path(DUMP_DIR)

    def asked(self) -> list[tuple[str, int]]:
        """(rid, tokens) of every request since the engine's start, in order."""
        url = f"http://{self.node.address}:{ENGINE_PORT}/hsq/requests"
        found: dict[str, Any] = requests.get(url, timeout=10).json()
        return [(one["rid"], one["tokens"]) for one in found["requests"]]

    def serves(self) -> bool:
        with contextlib.suppress(requests.RequestException):
            return requests.get(f"http://{self.node.address}:{ENGINE_PORT}/model_info", timeout=2).ok
        return False


class Cluster:
    """directory: for logs and Redis' data. To be used by the thread that made it, which is on its network."""

    def __init__(self, shape: Shape, directory: Path, redis: RedisServer, nodes: list[GpuNode]) -> None:
        self.shape, self.directory, self.redis, self.nodes = shape, directory, redis, nodes

    @property
    def services(self) -> list[Service]:
        return [service for n in self.nodes for service in (n.engine, *n.workers)]

    @property
    def settings(self) -> dict[str, str]:
        return {**self.shape.settings, "HSQ_REDIS_URL": self.redis.url}

    def hsqueue(self, *arguments: str | Path) -> Result:
        """A command on the head node."""
        return hsqueue(*arguments, env=self.settings)

    def start(self, where: GpuNode, *arguments: str | Path) -> subprocess.Popen[bytes]:
        """A command on a node."""
        settings = {**environment(), **self.settings}
        with (self.directory / "commands.log").open("ab") as output:
            return subprocess.Popen(
                [*where.node.prefix, *command(*arguments)], env=shimmed(settings, where.control, where.links),
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, preexec_fn=die_with_parent,
            )  # fmt: skip

    def said(self) -> str:
        """What commands on nodes printed."""
        return (self.directory / "commands.log").read_text()[-6000:]

    def tick(self) -> None:
        for service in self.services:
            service.tick()

    def wait(self, condition: Callable[[], bool], why: str, patience: float = PATIENCE) -> None:
        """Keeps the cluster alive until `condition` holds. why: what is wrong where it does not in `patience` s."""
        await_true(condition, lambda: f"{why}\n{self.tails()}", patience, pause=0.1, meanwhile=self.tick)

    def plan(self, prompts: Path, root: Path, shard_size: int) -> None:
        found = self.hsqueue("plan", prompts, "--out", root, "--shard-size", str(shard_size))
        assert found.status == 0, found.text

    def enqueue(self, root: Path) -> None:
        found = self.hsqueue("enqueue", root)
        assert found.status == 0, found.text

    def status(self, root: Path) -> dict[str, Any]:
        return self.hsqueue("status", root, "--json").json()

    def counts(self, root: Path) -> Counts | None:
        """What the ledger says; None where Redis says nothing."""
        try:
            with self._ledger(root) as ledger:
                info = ledger.info()
                return ledger.counts(info.samples) if info else None
        except RedisUnreachable:
            return None

    def holders(self, root: Path) -> dict[int, str]:
        """Shard -> owner of its live lease."""
        with self._ledger(root) as ledger:
            return ledger.live_holders()

    def fence(self, root: Path, shard: int) -> int:
        """Of the shard's lease."""
        with self._ledger(root) as ledger:
            return int(str(ledger.client.hget(ledger.keys.holders, str(shard))).split(" ")[0])

    @contextlib.contextmanager
    def _ledger(self, root: Path) -> Iterator[Ledger]:
        with self.redis.client() as client:
            yield Ledger(client, self.redis.url, load_run(root).run)

    def _beats(self) -> list[dict[str, Any]]:
        with self.redis.client() as client:
            return [json.loads(beat) for beat in client.hvals(WORKERS)]

    def paused(self) -> list[str]:
        """Why workers are, one reason each."""
        return [beat["paused"] for beat in self._beats() if beat["paused"]]

    def wait_for_workers(self) -> None:
        """Until one worker of each node consumes."""

        def all_consume() -> bool:
            return len({beat["host"] for beat in self._beats() if not beat["paused"]}) == len(self.nodes)

        self.wait(all_consume, "not every node has a worker that consumes")

    def finish(self, root: Path, patience: float = PATIENCE) -> None:
        """Waits until no sample is pending and every shard has its manifest."""
        counts: Counts | None = None

        def ended() -> bool:
            nonlocal counts
            counts = self.counts(root)
            written = len(list(root.glob("manifests/*/shard-*.json")))
            return counts is not None and counts.pending == 0 and written == load_run(root).shards

        self.wait(ended, f"the run does not end: {counts}", patience)

    def tails(self) -> str:
        return "\n".join(f"--- {service.name} {service.deaths}\n{service.tail()}" for service in self.services)


@contextlib.contextmanager
def cluster(
    shape: Shape,
    directory: Path,
    volume: Path | None = None,
    mount: Sequence[str | Path] = SMALL_VOLUME,
    share: Callable[[], contextlib.AbstractContextManager[Share]] | None = None,
) -> Iterator[Cluster]:
    """Everything started, engines and workers ready or getting ready; ended and gone at the end.

    volume: where a file system of its own is mounted, with these options of ``mount``. share: serves a volume from
    the head, which every node and the head mount for themselves.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(head_network())
        if volume is not None:
            stack.enter_context(mounted(volume, *mount))
        attach = stack.enter_context(share()) if share is not None else None
        directory.mkdir(parents=True, exist_ok=True)
        data = directory / "redis"
        data.mkdir()
        redis = RedisServer(data, REDIS_PORT, host=HEAD)
        redis.start()
        stack.callback(redis.kill)
        nodes = []
        for number in range(shape.nodes):
            made = stack.enter_context(node(number, shape.shared_memory))
            if attach is not None:
                stack.enter_context(attach(made.prefix))
            nodes.append(_gpu_node(made, shape, directory, redis))
            stack.callback(_end, nodes[-1])
        if attach is not None:
            stack.enter_context(attach(()))
        for one in nodes if not shape.idle else ():
            one.dump_dir.mkdir(mode=0o700)
            for service in (one.engine, *one.workers):
                service.start()
        yield Cluster(shape, directory, redis, nodes)


def _gpu_node(made: Node, shape: Shape, directory: Path, redis: RedisServer) -> GpuNode:
    control, links = directory / f"{made.name}.control", directory / f"{made.name}.links"
    url = f"redis://:{redis.password}@127.0.0.1:{REDIS_RELAY}/0"
    workers = shimmed({**environment(), **shape.settings, "HSQ_REDIS_URL": url}, control, links)
    engine = Service(
        f"{made.name}-engine",
        [
            *made.prefix, sys.executable, "-m", "hsengine", "--host", "0.0.0.0", "--port", str(ENGINE_PORT),
            "--dump-dir", DUMP_DIR, *shape.engine,
        ],
        environment(),
        directory / f"{made.name}-engine.log",
    )  # fmt: skip
    return GpuNode(
        made, engine, [_worker(made, k, workers, directory, shape.workers > 1) for k in range(shape.workers)],
        start_proxy("127.0.0.1", REDIS_RELAY, HEAD, REDIS_PORT, made.prefix),
        start_proxy("127.0.0.1", ENGINE_RELAY, "127.0.0.1", ENGINE_PORT, made.prefix), control, links,
    )  # fmt: skip


def _worker(made: Node, number: int, settings: dict[str, str], directory: Path, several: bool) -> Service:
    name = f"gpu{number}"
    standby = ["--standby"] if several else []
    arguments = command(
        "worker", "--engine", f"http://127.0.0.1:{ENGINE_RELAY}", "--dump-dir", DUMP_DIR, "--name", name, *standby
    )
    log = directory / f"{made.name}-{name}.log"
    return Service(f"{made.name}-{name}", [*made.prefix, *arguments], settings, log)


def _end(one: GpuNode) -> None:
    for service in (*one.workers, one.engine):
        service.stop()
    one.redis.stop()
    one.engine_relay.stop()
