"""Workers that die or freeze in the middle of a shard, and what the others make of it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.chaos.cluster.cluster import Cluster, GpuNode, Shape, cluster
from tests.chaos.cluster.namespaces import require_namespaces
from tests.chaos.evidence import asked_for, linked_twice, replaced, standing
from tests.chaos.operations.freeze import Freeze
from tests.chaos.operations.kill import Kill
from tests.chaos.operations.redis import RedisBackEmpty, RedisFlushed
from tests.support.cli import QUICK
from tests.support.prompts import Reference, half_alike, published, token_prompts, wrong_samples
from tests.support.waiting import await_true

COUNT = 160
SLOW = ("--misbehave", '{"slow": 2.0}')
TTL = 10
NEXT_WORKER_SECONDS = 15.0


@pytest.fixture(autouse=True)
def _root() -> None:
    require_namespaces()


def shape(ttl: float = 5) -> Shape:
    """About eight samples a second and node."""
    return Shape(engine=SLOW, settings={**QUICK, "HSQ_MAX_IN_FLIGHT": "8", "HSQ_LEASE_TTL": str(ttl)})


def begun(c: Cluster, tmp_path: Path, shard_size: int, count: int) -> Path:
    """A run of which at least `count` samples are published."""
    root = tmp_path / "run"
    c.plan(token_prompts(tmp_path / "prompts.jsonl", half_alike(COUNT)), root, shard_size)
    c.wait_for_workers()
    c.enqueue(root)
    c.wait(lambda: len(published(root)) >= count, "nothing is published")
    return root


def holder_and_other(c: Cluster, root: Path) -> tuple[GpuNode, GpuNode]:
    """Of the only shard."""
    owner = c.holders(root)[0]
    first, second = c.nodes
    return (first, second) if first.node.name in owner else (second, first)


def assert_right(c: Cluster, root: Path) -> None:
    assert published(root) == set(range(COUNT))
    assert wrong_samples(root, Reference()) == []
    assert linked_twice(n.links for n in c.nodes) == []
    assert list(root.glob("samples/*/*/.*")) == []


def indices(nodes: Iterable[GpuNode], root: Path) -> list[int]:
    """Samples that the engines were asked for, in ascending order, with repetitions."""
    return sorted(index for n in nodes for index in asked_for(n.asked(), root))


def test_another_worker_is_at_a_dead_ones_shard_within_seconds(tmp_path: Path) -> None:
    with cluster(shape(TTL), tmp_path / "cluster") as c:
        root = begun(c, tmp_path, COUNT, COUNT // 4)
        dead, other = holder_and_other(c, root)
        worker = dead.workers[0]
        worker.wanted = False
        family = worker.family()
        assert Kill(worker.main).apply()
        began = time.monotonic()
        await_true(lambda: not any(p.is_running() and p.status() != "zombie" for p in family), "its children live")
        known = published(root)
        c.wait(lambda: other.node.name in c.holders(root).get(0, ""), "nobody takes the shard")
        took = time.monotonic() - began
        c.finish(root)
        again = indices([other], root)
        assert_right(c, root)
    print(f"at work {took:.1f} s after the kill; {len(known)} of {COUNT} were published, {len(again)} asked for again")
    assert took < NEXT_WORKER_SECONDS
    assert len(known) < COUNT, "it was in the middle"
    assert again == sorted(set(range(COUNT)) - known)


def test_a_thawed_worker_publishes_nothing(tmp_path: Path) -> None:
    with cluster(shape(), tmp_path / "cluster") as c:
        root = begun(c, tmp_path, COUNT, COUNT // 4)
        frozen, other = holder_and_other(c, root)
        worker = frozen.workers[0]
        ice = Freeze(worker.family)
        assert ice.apply()
        linked = frozen.links.read_text()
        before = standing(root)
        c.finish(root)
        after = standing(root)
        assert replaced(before, after) == []
        assert len(before) < len(after) == COUNT
        (manifest,) = root.glob("manifests/*/shard-*.json")
        assert other.node.name in manifest.read_text()
        ice.undo()
        c.wait(lambda: "the lease of shard 0 is lost" in worker.tail(), "it does not notice")
        assert frozen.links.read_text() == linked
        assert standing(root) == after
        assert_right(c, root)


@pytest.mark.parametrize("kind", [RedisFlushed, RedisBackEmpty])
def test_a_redis_that_lost_everything_costs_no_sample(
    kind: type[RedisFlushed | RedisBackEmpty], tmp_path: Path
) -> None:
    with cluster(shape(), tmp_path / "cluster") as c:
        root = begun(c, tmp_path, 20, COUNT // 4)
        fault = kind(c.redis)
        known = published(root)
        before = [len(n.asked()) for n in c.nodes]
        fault.apply()
        fault.undo()
        c.finish(root)
        later = {i for n, k in zip(c.nodes, before, strict=True) for i in asked_for(n.asked()[k:], root)}
        assert_right(c, root)
        assert c.status(root)["done"] == COUNT
    assert later, "there was work left"
    assert not later & known, "done samples were asked for again"
    assert len(list((root / "epochs").iterdir())) == 2, "the ledger was rebuilt once"
