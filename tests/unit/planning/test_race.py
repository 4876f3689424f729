"""Several planners of one directory: one plan, one run, and nobody's work half done."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hsqueue.contracts.errors import FingerprintMismatch
from hsqueue.contracts.target import Target
from hsqueue.planning.plan import PlanOptions, PlanResult, load_plan, load_run, make_plan
from hsqueue.planning.shards import read_shard
from hsqueue.store.layout import RunLayout

RECORDS: list[dict[str, Any]] = [{"id": str(i), "input_ids": [i % 500]} for i in range(1500)]
OPTIONS = PlanOptions(max_length=8, shard_size=50)


def require_one_whole_run(root: Path) -> None:
    info = load_run(root)
    assert load_plan(root).run == info.run
    assert (RunLayout(root).plan / "run.json").samefile(RunLayout(root).run_json)
    found = [one.id for shard in range(info.shards) for one in read_shard(RunLayout(root).plan_shard(shard))]
    assert found == [record["id"] for record in RECORDS]
    assert sorted(path.name for path in root.iterdir()) == ["plan", "run.json"]


def overtaken(
    path: Path, root: Path, target: Target, mine: PlanOptions, theirs: PlanOptions, at: int
) -> tuple[PlanResult, list[PlanResult]]:
    """Plans with `mine` while, after `at` records, another planner does the whole of its work with `theirs`."""
    other: list[PlanResult] = []

    def overtake(read: int) -> None:
        if read >= at and not other:
            other.append(make_plan([path], root, target, None, theirs))

    return make_plan([path], root, target, None, mine, overtake), other


@pytest.mark.parametrize("at", [256, 1024, len(RECORDS)])
def test_a_planner_that_is_overtaken_returns_the_winners_run(
    write_lines: Callable[..., Path], target: Target, tmp_path: Path, at: int
) -> None:
    path, root = write_lines(RECORDS), tmp_path / "run"
    result, [winner] = overtaken(path, root, target, OPTIONS, OPTIONS, at)
    assert (winner.made, result.made) == (True, False)
    assert (result.info, result.report) == (winner.info, winner.report)
    require_one_whole_run(root)


@pytest.mark.parametrize("at", [256, len(RECORDS)])
def test_a_planner_that_is_overtaken_by_other_options_is_refused(
    write_lines: Callable[..., Path], target: Target, tmp_path: Path, at: int
) -> None:
    path, root = write_lines(RECORDS), tmp_path / "run"
    with pytest.raises(FingerprintMismatch, match="shard_size: the run has 70, this is 50"):
        overtaken(path, root, target, OPTIONS, PlanOptions(max_length=8, shard_size=70), at)
    assert load_run(root).fingerprint.shard_size == 70
    require_one_whole_run(root)


PLANNER = """
import ast, json, sys
from pathlib import Path
from hsqueue.contracts.target import Target
from hsqueue.planning.plan import PlanOptions, make_plan
target = Target(*ast.literal_eval(sys.argv[3]))
print("ready", flush=True)
sys.stdin.readline()
result = make_plan([Path(sys.argv[1])], Path(sys.argv[2]), target, None, PlanOptions(max_length=8, shard_size=50))
print(json.dumps([result.info.run, result.made]))
"""


def test_processes_that_plan_at_once_agree(write_lines: Callable[..., Path], target: Target, tmp_path: Path) -> None:
    path, root = write_lines(RECORDS), tmp_path / "run"
    command = [sys.executable, "-c", PLANNER, str(path), str(root), repr(dataclasses.astuple(target))]
    planners = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for planner in planners:
        assert planner.stdout is not None
        assert planner.stdout.readline() == "ready\n"
    for planner in planners:
        assert planner.stdin is not None
        planner.stdin.write("go\n")
        planner.stdin.flush()
    results = [json.loads(planner.communicate(timeout=120)[0]) for planner in planners]
    assert len({run for run, _ in results}) == 1
    assert sum(made for _, made in results) == 1
    require_one_whole_run(root)
