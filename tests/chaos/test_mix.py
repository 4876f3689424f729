"""A short mix of every kind of fault over two nodes; ``make soak`` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.cluster.namespaces import require_namespaces
from tests.chaos.kinds import kinds
from tests.chaos.report import to_markdown
from tests.chaos.soak import NODES, Plan, soak

SEED = 4


@pytest.mark.timeout(900)
def test_a_short_mix_of_every_kind(tmp_path: Path) -> None:
    require_namespaces()
    said: list[str] = []
    count = len(kinds(NODES))
    plan = Plan(seed=SEED, samples=2000, faults=count, shard_size=32, volume=1 << 30)
    verdict, records = soak(plan, tmp_path, said.append)
    print("\n".join(said), to_markdown(verdict, records), sep="\n")
    assert verdict.is_right, verdict
    assert verdict.total == plan.samples
    assert len({r.planned.kind for r in records if r.hit}) >= count - 4, "faults hit something"
