"""The same thing done twice at once, on two machines: one result."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.cluster.cluster import Shape, cluster
from tests.chaos.cluster.namespaces import require_namespaces
from tests.chaos.evidence import asked_for, linked_twice
from tests.support.prompts import Reference, half_alike, published, token_prompts, wrong_samples

COUNT = 120


@pytest.fixture(autouse=True)
def _root() -> None:
    require_namespaces()


def assert_one_result(root: Path, links: list[Path]) -> None:
    assert published(root) == set(range(COUNT))
    assert wrong_samples(root, Reference()) == []
    assert linked_twice(links) == []
    assert sum(len(log.read_text().splitlines()) for log in links if log.exists()) >= COUNT, "the logs show links"
    assert list(root.glob("samples/*/*/.*")) == []


def test_two_producers_enqueue_a_run_at_once(tmp_path: Path) -> None:
    root = tmp_path / "run"
    with cluster(Shape(), tmp_path / "cluster") as c:
        c.plan(token_prompts(tmp_path / "prompts.jsonl", half_alike(COUNT)), root, 10)
        c.wait_for_workers()
        producers = [c.start(n, "enqueue", root) for n in c.nodes]
        c.wait(lambda: all(p.poll() is not None for p in producers), "a producer does not end")
        assert [p.returncode for p in producers] == [0, 0], c.said()
        c.finish(root)
        asked = sorted(index for n in c.nodes for index in asked_for(n.asked(), root))
        assert_one_result(root, [n.links for n in c.nodes])
    assert asked == list(range(COUNT)), "no sample was asked for twice"


def test_a_run_is_started_on_two_machines_at_once(tmp_path: Path) -> None:
    """Each plans it, enqueues it and works on it, with an engine and a worker of its own."""
    root = tmp_path / "run"
    prompts = token_prompts(tmp_path / "prompts.jsonl", half_alike(COUNT))
    with cluster(Shape(idle=True), tmp_path / "cluster") as c:
        runs = [c.start(n, "run", prompts, "--out", root, "--shard-size", "10", "--deep") for n in c.nodes]
        c.wait(lambda: all(p.poll() is not None for p in runs), "a run does not end")
        assert [p.returncode for p in runs] == [0, 0], c.said()
        counts = c.counts(root)
        assert counts is not None
        assert (counts.done, counts.pending) == (COUNT, 0)
        assert_one_result(root, [n.links for n in c.nodes])
        assert all(list(n.node.path("/dev/shm").iterdir()) == [] for n in c.nodes), "nothing is left behind"
