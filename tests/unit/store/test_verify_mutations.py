"""No random change of a finished run's files goes unseen by ``verify --deep``."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from hsqueue.contracts.errors import RunDamaged
from hsqueue.contracts.sample import Ending, GivenUp
from hsqueue.planning.shards import read_shard
from hsqueue.store.verify import verify
from tests.support.mutate import mutated
from tests.support.volume import Volume

ROUNDS = 400
SKIPPED = GivenUp(1, Ending.SKIPPED, 1, "SampleTooLong", "more tokens than the engine accepts")


@pytest.fixture
def finished(volume: Volume) -> Volume:
    volume.finish_shard(0, [SKIPPED])
    volume.finish_shard(1)
    return volume


def seen(volume: Volume) -> bool:
    return not verify(volume.layout, volume.info, deep=True).clean


def files(volume: Volume, *below: Path) -> list[Path]:
    return sorted(path for top in below for path in top.rglob("*") if path.is_file())


@pytest.mark.parametrize("seed", range(3))
def test_every_change_of_a_sample_or_a_manifest_is_found(finished: Volume, seed: int) -> None:
    dice = random.Random(seed)
    victims = files(finished, finished.layout.samples, finished.layout.manifests)
    assert len(victims) == 7
    for _ in range(ROUNDS):
        path = dice.choice(victims)
        genuine = path.read_bytes()
        changed, how = mutated(genuine, dice)
        path.write_bytes(changed)
        assert seen(finished), f"{path.name}: {how}"
        path.write_bytes(genuine)
    assert not seen(finished)


def test_every_change_of_the_plan_is_found_or_changes_no_sample(finished: Volume) -> None:
    dice = random.Random(4)
    plan = finished.layout.plan_shard(0)
    genuine, samples = plan.read_bytes(), read_shard(plan)
    harmless = 0
    for _ in range(ROUNDS):
        changed, how = mutated(genuine, dice)
        plan.write_bytes(changed)
        try:
            if not seen(finished):
                harmless += 1
                assert read_shard(plan) == samples, how
        except RunDamaged:
            continue
    assert harmless < ROUNDS / 2
