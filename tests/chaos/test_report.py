"""The proof at a soak's end notices what it is there for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.evidence import linked_twice, replaced, standing
from tests.chaos.mixer import Record
from tests.chaos.report import Verdict, to_json, to_markdown
from tests.chaos.schedule import Planned

RIGHT = Verdict(7, 10, 10, {"EngineKilled": 1}, (), (), (), (), 2, 60.0)
RECORDS = [
    Record(Planned(0, 3, "engine killed", "node0", 0.0, 1), 3, "killed 5", 4, back=2.0),
    Record(Planned(1, 5, "engine killed", "node1", 0.0, 1), 6, "killed 6", 3, back=4.0),
    Record(Planned(2, 7, "torn dumps", "node1", 0.0, 1), 8, "", 0),
]


def test_a_verdict_is_right_only_without_a_finding() -> None:
    assert RIGHT.is_right
    assert not replace(RIGHT, done=9).is_right
    for name in ("wrong", "twice", "replaced", "left"):
        assert not replace(RIGHT, **{name: ("x",)}).is_right, name


def test_the_table_counts_what_was_hit() -> None:
    text = to_markdown(RIGHT, RECORDS)
    assert "| engine killed | 2 | 7 | 3.0 s, 4.0 s |" in text
    assert "| torn dumps | 0 | 0 | - |" in text
    assert "| all, 1 kinds | 2 | 7 | |" in text
    assert "seed 7: 10 of 10 done in 60 s" in text
    assert "1 EngineKilled" in text
    assert json.loads(to_json(RIGHT, RECORDS))["faults"][1]["back"] == 4.0


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for index in range(3):
        path = tmp_path / "samples" / "000" / "000000" / f"{index:012d}.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"states")
    return tmp_path


def test_a_file_that_went_or_was_replaced_or_changed_is_noticed(root: Path) -> None:
    before = standing(root)
    assert len(before) == 3
    gone, other, changed = map(Path, sorted(before))
    assert replaced(before, standing(root)) == []
    gone.unlink()
    aside = other.with_suffix(".new")
    aside.write_bytes(b"states")
    aside.replace(other)
    changed.write_bytes(b"STATES")
    assert sorted(replaced(before, standing(root))) == [str(gone), str(other), str(changed)]


def test_a_name_linked_on_two_nodes_is_noticed(tmp_path: Path) -> None:
    logs = [tmp_path / "a", tmp_path / "b", tmp_path / "none"]
    logs[0].write_text("/r/1.safetensors\n/r/2.safetensors\n/r/shard-0.json\n")
    logs[1].write_text("/r/2.safetensors\n/r/shard-0.json\n")
    assert linked_twice(logs) == ["/r/2.safetensors"]
