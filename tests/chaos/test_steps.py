"""Every fault alone, at each step of a sample's way: the run completes by itself, nothing is wrong or done twice."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import torch

from tests.chaos.gated import HALF_COPIED, STEPS
from tests.chaos.operations import Fault
from tests.chaos.operations.freeze import Freeze
from tests.chaos.operations.kill import Kill
from tests.chaos.operations.network import Relayed
from tests.chaos.operations.processes import main_of
from tests.chaos.operations.redis import RedisBackEmpty, RedisDead, RedisFlushed
from tests.chaos.operations.storage import Fill, ReadOnly
from tests.chaos.pair import Node, Pair, Run, pair
from tests.support.prompts import Reference, wrong_samples
from tests.support.redis import redis_server

LENGTHS = [20, 20, 33, 20, 47, 5, 20, 61, 20, 12, 20, 90]
SHARD = 6


@dataclass(frozen=True, slots=True)
class Case:
    """until: what has to be seen before the fault is undone. into: whoever stands at the gate goes on into the fault,
    and not after it.
    """

    fault: Callable[[Pair, Node, int], Fault]
    until: Callable[[Pair, Run, int], bool] = lambda pair, run, shard: True
    into: bool = False


def taken_over(pair: Pair, run: Run, shard: int) -> bool:
    """Another worker has ended the shard."""
    return shard in run.ledger.ended_shards(len(LENGTHS) // SHARD)


def paused_or_complete(pair: Pair, run: Run, shard: int) -> bool:
    return any(node.is_paused() for node in pair.nodes) or is_complete(run)


def process(pid: int) -> Callable[[], list[psutil.Process]]:
    return lambda: [psutil.Process(pid)] if psutil.pid_exists(pid) else []


CASES = {
    "worker's child killed": Case(lambda pair, node, pid: Kill(process(pid))),
    "worker killed": Case(lambda pair, node, pid: Kill(node.processes)),
    "worker frozen longer than its lease": Case(lambda pair, node, pid: Freeze(node.processes), taken_over),
    "engine killed": Case(lambda pair, node, pid: Kill(main_of(lambda: node.engine.process))),
    "engine unreachable": Case(lambda pair, node, pid: Relayed(node.to_engine, "cut")),
    "Redis killed, back on its data": Case(lambda pair, node, pid: RedisDead(pair.redis)),
    "Redis killed, back empty": Case(lambda pair, node, pid: RedisBackEmpty(pair.redis)),
    "Redis flushed": Case(lambda pair, node, pid: RedisFlushed(pair.redis)),
    "Redis unreachable longer than the lease": Case(lambda pair, node, pid: Relayed(node.to_redis, "hold"), taken_over),
    "volume full": Case(lambda pair, node, pid: Fill(pair.volume), paused_or_complete, into=True),
    "volume read-only": Case(lambda pair, node, pid: ReadOnly(pair.volume), paused_or_complete, into=True),
}


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    directory = tmp_path_factory.mktemp("steps")
    volume = directory / "volume"
    with small_volume(volume), redis_server(directory / "redis") as redis, pair(directory, volume, redis) as made:
        yield made


@contextmanager
def small_volume(path: Path) -> Iterator[None]:
    """A file system of its own, which can be filled without harm."""
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", path], check=False)
    if mounted.returncode:
        pytest.skip("mounting a file system needs root")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", path], check=True)


@pytest.fixture(scope="module")
def reference() -> Iterator[Reference]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Reference()
    torch.set_num_threads(threads)


CELLS = [
    (name, step) for name in CASES for step in STEPS
    if (name, step) != ("volume read-only", HALF_COPIED)  # nothing can be mounted read-only under a file in writing
]  # fmt: skip


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("name", "step"), CELLS)
def test_a_fault_at_a_step_costs_nothing_but_time(workers: Pair, reference: Reference, name: str, step: str) -> None:
    case = CASES[name]
    workers.gate.close(step)
    with ExitStack() as stack:
        stack.callback(workers.gate.open)
        run = workers.start(LENGTHS, SHARD)
        node, pid = workers.held_at_gate()
        (shard,) = [s for s, owner in run.ledger.holders().items() if owner.startswith(f"{node.name}@")][:1] or [0]
        workers.mark(run)
        fault = case.fault(workers, node, pid)
        assert fault.apply()
        undone = stack.enter_context(ExitStack())
        undone.callback(fault.undo)
        if case.into:
            workers.gate.open()
        workers.wait_for(lambda: case.until(workers, run, shard), "nobody took the shard over")
        undone.close()
    workers.wait_for(lambda: is_complete(run), f"the run does not complete after: {name}, {step}")
    workers.wait_for(lambda: all(node.is_at_rest() for node in workers.nodes), "a worker or an engine is not back")
    check(workers, run, reference)


def is_complete(run: Run) -> bool:
    counts = run.ledger.counts(run.samples)
    assert counts.failed == counts.skipped == 0, run.ledger.given_up()
    return counts.done == run.samples and len(run.ledger.ended_shards(run.samples // SHARD)) == run.samples // SHARD


def check(workers: Pair, run: Run, reference: Reference) -> None:
    found = run.files()
    assert set(found) == set(range(run.samples))
    assert {index: found[index] for index in run.standing} == run.standing, "a published file was replaced"
    assert workers.asked_again(run) == set(), "a published sample was asked for again"
    assert wrong_samples(run.root, reference) == []
    assert list(run.root.glob("samples/*/*/.*")) == [], "a temporary file is left"
    assert len(list(run.root.glob("manifests/*/*.json"))) == run.samples // SHARD
    # A supervisor starts dead workers again here, so one that Celery ended would go unnoticed.
    assert "Unrecoverable error" not in "".join(node.log.read_text() for node in workers.nodes)
