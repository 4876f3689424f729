"""Runs over several nodes, each with an address, a host name and a /dev/shm of its own, and one shared volume."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.cluster.cluster import REDIS_PORT, Cluster, Shape, cluster
from tests.chaos.cluster.namespaces import HEAD, require_namespaces
from tests.chaos.evidence import fences, standing
from tests.chaos.operations.network import Relayed, Unplug
from tests.chaos.operations.storage import Fill, Gone, ReadOnly
from tests.support.cli import QUICK
from tests.support.prompts import Reference, half_alike, published, token_prompts, wrong_samples
from tests.support.waiting import await_true

COUNT = 160
SLOW = Shape(engine=("--misbehave", '{"slow": 2.0}'), settings={**QUICK, "HSQ_MAX_IN_FLIGHT": "4"})
"""About four samples a second and node, so that what happens to a shard happens while it is at work."""


@pytest.fixture(autouse=True)
def _root() -> None:
    require_namespaces()


def planned(c: Cluster, tmp_path: Path, shard_size: int = 20) -> Path:
    root = tmp_path / "run"
    c.plan(token_prompts(tmp_path / "prompts.jsonl", half_alike(COUNT)), root, shard_size)
    return root


def assert_right(root: Path) -> None:
    assert published(root) == set(range(COUNT))
    assert wrong_samples(root, Reference()) == []
    assert list(root.glob("samples/*/*/.*")) == []


def test_two_nodes_share_a_run(tmp_path: Path) -> None:
    with cluster(Shape(), tmp_path / "cluster") as c:
        root = planned(c, tmp_path)
        c.wait_for_workers()
        c.enqueue(root)
        c.finish(root)
        assert c.status(root)["done"] == COUNT
        asked = [len(n.asked()) for n in c.nodes]
        here, there = (sorted(path.name for path in n.dump_dir.iterdir()) for n in c.nodes)
    assert_right(root)
    assert min(asked) > 10, f"both nodes work: {asked}"
    assert here == there == [".hsqueue", "engine.json"]
    assert not Path("/dev/shm/dumps").exists(), "each node has a /dev/shm of its own"


def test_a_node_without_a_network_publishes_nothing_and_comes_back(tmp_path: Path) -> None:
    """Its cable is pulled for longer than a lease; what it had is done by the other; then it is put back."""
    with cluster(SLOW, tmp_path / "cluster") as c:
        root = planned(c, tmp_path, 40)
        c.wait_for_workers()
        c.enqueue(root)
        lost, other = c.nodes
        c.wait(lambda: len(published(root)) > 10, "nothing is published")
        mine = [shard for shard, owner in c.holders(root).items() if lost.node.name in owner]
        assert mine, "the node holds a shard"
        cable = Unplug(lost.node.name, lost.node.cable)
        cable.apply()
        assert not lost.node.reaches(HEAD, REDIS_PORT)
        c.wait(lambda: all(other.node.name in c.holders(root).get(s, "") for s in mine), "nobody takes its shards")
        taken = {shard: c.fence(root, shard) for shard in mine}
        before = standing(root)
        linked = len(lost.links.read_text().splitlines())
        c.finish(root)
        assert len(lost.links.read_text().splitlines()) == linked, "it published after its shards went to another"
        assert all(standing(root)[path] == mark for path, mark in before.items())
        cable.undo()
        await_true(lambda: lost.node.reaches(HEAD, REDIS_PORT), "the cable is back")
        again = planned_again(c, tmp_path)
        c.wait(lambda: len(lost.links.read_text().splitlines()) > linked, "the node does not come back to work")
        c.finish(again)
        parts = {
            shard: (min(found) < fence, fence <= max(found))
            for shard, fence in taken.items()
            if (found := fences(root, shard))
        }
        assert (True, True) in parts.values(), f"both had a part of a shard: {parts}"
    assert_right(root)


def planned_again(c: Cluster, tmp_path: Path) -> Path:
    """More work, for a node that comes back."""
    root = tmp_path / "more"
    c.plan(token_prompts(tmp_path / "more.jsonl", half_alike(COUNT), seed=9), root, 10)
    c.enqueue(root)
    return root


def test_a_worker_that_can_go_on_while_redis_is_away_goes_on(tmp_path: Path) -> None:
    """Its volume goes and comes back; when it is back, and the worker takes messages again, Redis is out of reach."""
    with cluster(replace(SLOW, nodes=1), tmp_path / "cluster", volume=tmp_path / "volume") as c:
        root = planned(c, tmp_path / "volume")
        c.wait_for_workers()
        c.enqueue(root)
        (one,) = c.nodes
        c.wait(lambda: len(published(root)) > 10, "nothing is published")
        volume, redis = Gone(tmp_path / "volume", one.node.prefix), Relayed(one.redis, "cut")
        pause = one.dump_dir / ".hsqueue" / "paused"
        volume.apply()
        c.wait(lambda: "Canceling queue" in one.workers[0].tail(), "the worker does not pause")
        c.wait(lambda: c.holders(root) == {}, "its shards are not given back")
        redis.apply()
        c.wait(lambda: "(1/None)" in one.workers[0].tail(), "Celery does not notice")
        volume.undo()
        c.wait(lambda: not pause.exists(), "the worker does not resume")
        c.wait(lambda: "(2/None)" in one.workers[0].tail(), "Celery does not try again")
        redis.undo()
        c.finish(root)
        assert_right(root)


@pytest.mark.parametrize("kind", [Fill, ReadOnly])
def test_a_volume_that_takes_nothing_pauses_everybody_until_it_does(
    kind: type[Fill | ReadOnly], tmp_path: Path
) -> None:
    with cluster(SLOW, tmp_path / "cluster", volume=tmp_path / "volume") as c:
        root = planned(c, tmp_path / "volume")
        c.wait_for_workers()
        c.enqueue(root)
        c.wait(lambda: len(published(root)) > 10, "nothing is published")
        fault = kind(tmp_path / "volume")
        assert fault.apply()
        c.wait(lambda: len(c.paused()) == 2, "the workers do not pause")
        assert all("full" in why or "Read-only" in why for why in c.paused()), c.paused()
        fault.undo()
        c.finish(root)
        assert_right(root)


def is_at_rest(root: Path) -> Callable[[], bool]:
    """Holds once nothing has been published for two seconds, in which about sixteen samples would be."""
    seen, since = -1, 0.0

    def look() -> bool:
        nonlocal seen, since
        count = len(published(root))
        if count != seen:
            seen, since = count, time.monotonic()
        return time.monotonic() - since >= 2.0

    return look


def test_shared_memory_that_is_full_costs_time_only(tmp_path: Path) -> None:
    shape = replace(SLOW, settings={**SLOW.settings, "HSQ_DUMP_TIMEOUT": "3"})
    with cluster(shape, tmp_path / "cluster") as c:
        root = planned(c, tmp_path)
        c.wait_for_workers()
        c.enqueue(root)
        c.wait(lambda: len(published(root)) > 10, "nothing is published")
        faults = [Fill(n.dump_dir) for n in c.nodes]
        assert all(fault.apply() for fault in faults)
        c.wait(is_at_rest(root), "they go on as if there were room")
        assert len(published(root)) < COUNT
        for fault in faults:
            fault.undo()
        c.finish(root)
    assert_right(root)
