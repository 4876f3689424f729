"""Runs on a distributed file system: every node has a client of its own, which goes by what it knows for a while."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hsqueue.local.processes import die_with_parent
from tests.chaos.cluster.cluster import Cluster, GpuNode, Shape, Share, cluster
from tests.chaos.cluster.gluster import Gluster, gluster
from tests.chaos.cluster.namespaces import require_namespaces
from tests.chaos.evidence import linked_twice
from tests.chaos.operations.freeze import Freeze
from tests.chaos.operations.system import shimmed
from tests.support.cli import QUICK
from tests.support.engine import environment
from tests.support.prompts import Reference, half_alike, published, token_prompts, wrong_samples
from tests.support.tools import program

COUNT = 160
CACHED = 60.0
"""Seconds; longer than any of it takes, so that what a node knows is never renewed by the passing of time."""
SLOW = Shape(engine=("--misbehave", '{"slow": 2.0}'), settings={**QUICK, "HSQ_MAX_IN_FLIGHT": "8"})


@pytest.fixture(autouse=True)
def _needs() -> None:
    require_namespaces()
    program("glusterfsd")
    if not Path("/dev/fuse").exists():
        pytest.skip("mounting GlusterFS needs /dev/fuse")


@contextlib.contextmanager
def shared(shape: Shape, tmp_path: Path) -> Iterator[tuple[Cluster, Gluster]]:
    made: list[Gluster] = []

    @contextlib.contextmanager
    def share() -> Iterator[Share]:
        with gluster(tmp_path / "gluster", tmp_path / "volume", CACHED) as volume:
            made.append(volume)
            yield volume.mounted

    with cluster(shape, tmp_path / "cluster", share=share) as c:
        yield c, made[0]


def begun(c: Cluster, volume: Gluster, shard_size: int = 20) -> tuple[Path, Path]:
    """A run, planned and sent: as the nodes see it, and as the brick holds it."""
    root, stored = volume.mountpoint / "run", volume.brick / "run"
    c.plan(token_prompts(volume.directory / "prompts.jsonl", half_alike(COUNT)), root, shard_size)
    c.wait_for_workers()
    c.enqueue(root)
    return root, stored


def goes_on(c: Cluster, stored: Path, more: int = 8) -> None:
    before = len(published(stored))
    c.wait(lambda: len(published(stored)) >= before + more, "nothing more is published")


def assert_right(c: Cluster, root: Path, stored: Path) -> None:
    verified = c.hsqueue("verify", root, "--deep")
    assert verified.status == 0, verified.text
    assert c.status(root)["done"] == COUNT
    assert published(stored) == set(range(COUNT))
    assert wrong_samples(stored, Reference()) == []
    assert list(stored.glob("samples/*/*/.*")) == []


def test_the_death_of_a_node_and_of_the_volume_cost_time_only(tmp_path: Path) -> None:
    with shared(SLOW, tmp_path) as (c, volume):
        root, stored = begun(c, volume)
        goes_on(c, stored)
        dead, other = c.nodes
        mine = [shard for shard, owner in c.holders(root).items() if dead.node.name in owner]
        assert mine, "the node holds a shard"
        dead.workers[0].stop()
        c.wait(lambda: any(other.node.name in c.holders(root).get(s, "") for s in mine), "nobody takes its shards")
        dead.workers[0].start()
        goes_on(c, stored)

        frozen = Freeze(volume.server)
        assert frozen.apply()
        c.wait(lambda: len(c.paused()) == 2, "the workers do not pause for a silent volume")
        assert all("volume" in why for why in c.paused()), c.paused()
        frozen.undo()
        goes_on(c, stored)

        volume.kill_brick()
        c.wait(lambda: len(c.paused()) == 2, "the workers do not pause for a dead volume")
        assert all("not connected" in why for why in c.paused()), c.paused()
        volume.start_brick()
        c.finish(stored)
        assert_right(c, root, stored)
        assert linked_twice(n.links for n in c.nodes) == []
        assert not any("Traceback" in one.log.read_text() for n in c.nodes for one in n.workers), c.tails()


def test_what_one_node_takes_back_the_others_ask_for_again(tmp_path: Path) -> None:
    """By verify --repair and by retry, while the others still remember the files and the manifests."""
    shape = Shape(engine=("--misbehave", '{"unavailable": 0.05}'), settings={**QUICK, "HSQ_MAX_ATTEMPTS": "1"})
    with shared(shape, tmp_path) as (c, volume):
        root, stored = begun(c, volume)
        c.finish(stored)
        assert c.status(root)["failed"], "none has failed"
        retry_all(c, root, stored)
        wrong = sorted(root.glob("samples/*/*/[0-9]*.safetensors"))[::40]
        for path in wrong:
            with path.open("r+b") as file:
                file.seek(-1, 2)
                file.write(b"\x07")
        repaired = c.hsqueue("verify", root, "--deep", "--repair")
        assert len(list(stored.glob("quarantine/*"))) == len(wrong), repaired.text
        sent = c.hsqueue("enqueue", root)
        assert sent.status == 0, sent.text
        c.finish(stored)
        retry_all(c, root, stored)
        assert_right(c, root, stored)


def retry_all(c: Cluster, root: Path, stored: Path) -> None:
    """Until none is left; another attempt has another fate."""
    while failed := c.status(root)["failed"]:
        again = c.hsqueue("retry", root, "--failed")
        assert again.text.startswith(f"{failed} sample"), again.text
        c.finish(stored)


def test_of_two_who_publish_one_sample_from_two_mounts_one_does(tmp_path: Path) -> None:
    count = 60
    orders = list(range(count)), list(reversed(range(count)))
    with shared(Shape(idle=True), tmp_path) as (c, volume):
        with contextlib.ExitStack() as stack:
            rivals = [
                stack.enter_context(rival(n, volume.mountpoint / "run", order))
                for n, order in zip(c.nodes, orders, strict=True)
            ]
            told = [json.loads(one.communicate()[0]) for one in together(rivals)]
        assert told[0] == told[1][::-1], "each was told of the file that stands"
        stored = volume.brick / "run"
        assert published(stored) == set(range(count))
        assert list(stored.glob("samples/*/*/.*")) == []
        assert linked_twice(n.links for n in c.nodes) == []
        shares = [len(n.links.read_text().splitlines()) for n in c.nodes]
        assert sum(shares) == count
        assert min(shares) > 0, f"nobody was beaten: {shares}"


@contextlib.contextmanager
def rival(where: GpuNode, root: Path, order: list[int]) -> Iterator[subprocess.Popen[bytes]]:
    """One that is ready: see ``tests.chaos.cluster.contest``."""
    process = subprocess.Popen(
        [*where.node.prefix, sys.executable, "-m", "tests.chaos.cluster.contest", str(root), json.dumps(order)],
        env=shimmed(environment(), where.control, where.links), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        preexec_fn=die_with_parent,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def together(rivals: list[subprocess.Popen[bytes]]) -> list[subprocess.Popen[bytes]]:
    """Lets all of them begin before any is waited for."""
    for one in rivals:
        assert one.stdin is not None
        one.stdin.write(b"go\n")
        one.stdin.flush()
    return rivals
