"""Works a schedule of faults off on a cluster while it works on a run, and keeps a record of each."""

from __future__ import annotations

import contextlib
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hsworker.budget import _SLOT
from tests.chaos.cluster.cluster import Cluster, GpuNode
from tests.chaos.evidence import Mark, replaced, standing
from tests.chaos.kinds import make_fault
from tests.chaos.operations import Fault
from tests.chaos.schedule import Planned, next_due

LOOK_SECONDS = 20.0
STALLED_SECONDS = 240.0


@dataclass(slots=True)
class Record:
    """at: samples published when it was done. hit: what was hit, empty where there was nothing. in_flight: requests
    in flight where it happened. back: seconds from its end until the next sample was published there.
    """

    planned: Planned
    at: int
    hit: str
    in_flight: int
    undone: float = 0.0
    back: float | None = None


@dataclass(slots=True)
class Mixer:
    """To be stepped by the cluster's thread. say: shows a line to people."""

    cluster: Cluster
    root: Path
    waiting: list[Planned]
    say: Callable[[str], None] = lambda line: None
    records: list[Record] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    _active: dict[str, tuple[Fault, float, Record]] = field(default_factory=dict)
    _open: list[tuple[Record, int]] = field(default_factory=list)
    _lines: dict[str, tuple[int, int]] = field(default_factory=dict)
    _seen: dict[str, Mark] = field(default_factory=dict)
    _next_look: float = 0.0
    _moved: tuple[int, float] = (0, 0.0)

    def run(self, over: Callable[[], bool]) -> None:
        """Until the schedule is worked off and `over` holds. Raises AssertionError where nothing moves any more."""
        self._moved = (0, time.monotonic())
        try:
            while self.waiting or self._active or not over():
                self.step()
                # The pace of its looks; faults are timed by them.
                time.sleep(0.05)
        finally:
            self._undo(lambda until: True)
        self._look()

    def step(self) -> None:
        now, published = time.monotonic(), self.published()
        self.cluster.tick()
        self._undo(lambda until: until <= now)
        self._notice(now)
        planned = next_due(self.waiting, published, set(self._active))
        if planned is not None:
            self.waiting.remove(planned)
            self._apply(planned, published)
        if now >= self._next_look:
            self._look()
            self._next_look = now + LOOK_SECONDS
        self._watch(published, now)

    def published(self, place: str = "") -> int:
        """Names linked so far, by the workers' own logs; on one node, or all of them."""
        return sum(self._count(n) for n in self.cluster.nodes if place in ("", n.node.name))

    def _count(self, node: GpuNode) -> int:
        offset, count = self._lines.get(node.node.name, (0, 0))
        with contextlib.suppress(FileNotFoundError), node.links.open("rb") as file:
            file.seek(offset)
            new = file.read()
            self._lines[node.node.name] = (offset + len(new), count + new.count(b".safetensors\n"))
        return self._lines.get(node.node.name, (0, 0))[1]

    def _apply(self, planned: Planned, published: int) -> None:
        fault = make_fault(planned, self.cluster, self.root)
        flying = sum(in_flight(n) for n in self.cluster.nodes if planned.place in (n.node.name, *ELSEWHERE))
        record = Record(planned, published, fault.apply(), flying)
        self.records.append(record)
        self._active[planned.place] = (fault, time.monotonic() + planned.seconds, record)
        self.say(f"{published:6} {planned.place:8} {planned.kind}, {planned.seconds} s: {record.hit or 'nobody there'}")

    def _undo(self, due: Callable[[float], bool]) -> None:
        for place, (fault, until, record) in list(self._active.items()):
            if due(until):
                del self._active[place]
                fault.undo()
                record.undone = time.monotonic()
                self._open.append((record, self.published(_scope(record))))

    def _notice(self, now: float) -> None:
        for record, before in list(self._open):
            if self.published(_scope(record)) > before:
                record.back = now - record.undone
                self._open.remove((record, before))

    def _look(self) -> None:
        """A published file is there for good, and as it was."""
        now = standing(self.root)
        self.wrong += replaced(self._seen, now)
        self._seen = now

    def _watch(self, published: int, now: float) -> None:
        if published > self._moved[0] or self._active:
            self._moved = (published, now)
        stalled = now - self._moved[1]
        assert stalled < STALLED_SECONDS, f"nothing is published any more\n{self.cluster.tails()}"


ELSEWHERE = ("redis", "volume", "producer")


def _scope(record: Record) -> str:
    return "" if record.planned.place in ELSEWHERE else record.planned.place


def in_flight(node: GpuNode) -> int:
    """Requests sent and unanswered by the node's worker. Read past its lock, which a frozen process may hold."""
    try:
        data = node.dump_dir.joinpath(".hsqueue", "budget").read_bytes()
        return sum(slot[2] for slot in _SLOT.iter_unpack(data) if slot[0])
    except (OSError, struct.error):
        return 0
