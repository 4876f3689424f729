"""The kinds of fault that are mixed, and how each is made on a cluster."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.chaos.cluster.cluster import Cluster, GpuNode
from tests.chaos.operations import Fault
from tests.chaos.operations.dumps import SpoilDumps, rows_swapped, swapped, torn
from tests.chaos.operations.freeze import Freeze
from tests.chaos.operations.kill import Kill, KillSoon
from tests.chaos.operations.network import Relayed, Unplug
from tests.chaos.operations.processes import Find, one_of
from tests.chaos.operations.redis import RedisBackEmpty, RedisClockSet, RedisDead, RedisFlushed, RedisFrozen
from tests.chaos.operations.storage import Fill, Gone, ReadOnly
from tests.chaos.operations.system import ClockSet, LinkLies, SlowFsync
from tests.chaos.schedule import Kind, Planned

REDIS, VOLUME, PRODUCER = "redis", "volume", "producer"
DAY = 86400.0

NodeFault = Callable[[GpuNode, random.Random, Path], Fault]
HeadFault = Callable[[Cluster, random.Random, Path], Fault]

ON_A_NODE: dict[str, tuple[tuple[float, float], NodeFault]] = {
    "worker killed": ((0, 0), lambda n, dice, v: Kill(active(n))),
    "worker's child killed": ((0, 0), lambda n, dice, v: Kill(one_of(children(n), dice))),
    "engine killed": ((0, 0), lambda n, dice, v: Kill(n.engine.main)),
    "worker frozen past its lease": ((6, 9), lambda n, dice, v: Freeze(family(n))),
    "engine frozen": ((1, 6), lambda n, dice, v: Freeze(n.engine.family)),
    "black hole to Redis": ((3, 10), lambda n, dice, v: Relayed(n.redis, "hold")),
    "connections to Redis cut": ((0.5, 4), lambda n, dice, v: Relayed(n.redis, "cut")),
    "slow network to Redis": ((3, 8), lambda n, dice, v: Relayed(n.redis, "delay 0.05")),
    "black hole to the engine": ((1, 6), lambda n, dice, v: Relayed(n.engine_relay, "hold")),
    "connections to the engine cut": ((0.5, 3), lambda n, dice, v: Relayed(n.engine_relay, "cut")),
    "cable pulled": ((2, 9), lambda n, dice, v: Unplug(n.node.name, n.node.cable)),
    "torn dumps": ((0, 0), lambda n, dice, v: SpoilDumps(family(n), n.dump_dir, torn)),
    "swapped dumps": ((0, 0), lambda n, dice, v: SpoilDumps(family(n), n.dump_dir, swapped)),
    "swapped rows": ((0, 0), lambda n, dice, v: SpoilDumps(family(n), n.dump_dir, rows_swapped)),
    "/dev/shm full": ((1, 5), lambda n, dice, v: Fill(n.dump_dir)),
    "slow fsync": ((3, 8), lambda n, dice, v: SlowFsync(n.control, 0.3)),
    "link lies": ((2, 6), lambda n, dice, v: LinkLies(n.control)),
    "clock set": ((2, 6), lambda n, dice, v: ClockSet(n.control, dice.choice((-2 * DAY, -3600, 3600, 2 * DAY)))),
    "volume gone": ((2, 5), lambda n, dice, v: Gone(v, n.node.prefix)),
}
ELSEWHERE: dict[str, tuple[str, tuple[float, float], HeadFault]] = {
    "Redis killed": (REDIS, (0.2, 3), lambda c, dice, root: RedisDead(c.redis)),
    "Redis back empty": (REDIS, (0.2, 2), lambda c, dice, root: RedisBackEmpty(c.redis)),
    "Redis emptied": (REDIS, (0, 0), lambda c, dice, root: RedisFlushed(c.redis)),
    "Redis frozen": (REDIS, (2, 9), lambda c, dice, root: RedisFrozen(c.redis)),
    "Redis' clock set forward": (REDIS, (0, 0), lambda c, dice, root: RedisClockSet(c.redis, 3600)),
    "producer killed": (
        PRODUCER, (0, 0),
        lambda c, dice, root: KillSoon(lambda: c.start(c.nodes[0], "enqueue", root), dice.uniform(0.3, 2.5)),
    ),
    "volume full": (VOLUME, (1, 6), lambda c, dice, root: Fill(root.parent)),
    "volume read-only": (VOLUME, (1, 4), lambda c, dice, root: ReadOnly(root.parent)),
}  # fmt: skip


def kinds(nodes: int) -> dict[str, Kind]:
    """Those of a cluster of so many nodes, whose volume is a small file system of its own."""
    places = tuple(f"node{k}" for k in range(nodes))
    found = {name: Kind(places, seconds) for name, (seconds, _) in ON_A_NODE.items()}
    return found | {name: Kind((place,), seconds) for name, (place, seconds, _) in ELSEWHERE.items()}


def make_fault(planned: Planned, cluster: Cluster, root: Path) -> Fault:
    """root: of the run, a directory of the volume."""
    dice = random.Random(planned.choice)
    if planned.kind in ELSEWHERE:
        return ELSEWHERE[planned.kind][2](cluster, dice, root)
    number = int(planned.place.removeprefix("node"))
    return ON_A_NODE[planned.kind][1](cluster.nodes[number], dice, root.parent)


def active(node: GpuNode) -> Find:
    """The worker of the node that has its engine; one that stands by has no children."""

    def find() -> list[psutil.Process]:
        return next((w.main() for w in node.workers if w.children()), [])

    return find


def children(node: GpuNode) -> Find:
    return lambda: next((found for w in node.workers if (found := w.children())), [])


def family(node: GpuNode) -> Find:
    return lambda: next((w.family() for w in node.workers if w.children()), [])
