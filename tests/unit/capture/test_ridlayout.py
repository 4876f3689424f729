from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import safe_open

from hscapture import ridlayout
from hscapture.ridlayout import RidLayout
from hsqueue.contracts.errors import DumpMalformed
from tests.unit.capture.states import make_card, make_dump

RID = "hsq.r.1.2.0"


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_dump_stands_under_its_rid_and_nothing_else_is_left(tmp_path: Path) -> None:
    RidLayout(tmp_path, make_card()).write(make_dump(RID, [1, 2, 3]))
    assert names(tmp_path) == [f"req_{RID}"]
    assert names(tmp_path / f"req_{RID}") == ["hidden.safetensors"]
    with safe_open(tmp_path / f"req_{RID}" / "hidden.safetensors", "pt") as file:
        assert file.get_tensor("input_ids").tolist() == [1, 2, 3]


@pytest.mark.parametrize("rid", ["", "a/../../b", "..", ".hidden", "a\0b", "x" * 300, "a b"])
def test_an_unsafe_rid_writes_nothing_anywhere(tmp_path: Path, rid: str) -> None:
    directory = tmp_path / "dumps"
    layout = RidLayout(directory, make_card())
    with pytest.raises(ValueError, match="not safe"):
        layout.write(make_dump(rid, [1]))
    assert names(tmp_path) == ["dumps"]
    assert names(directory) == []


@pytest.mark.parametrize("filled", [True, False])
def test_a_dump_that_exists_is_not_replaced(tmp_path: Path, filled: bool) -> None:
    layout = RidLayout(tmp_path, make_card())
    standing = tmp_path / f"req_{RID}"
    standing.mkdir()
    if filled:
        (standing / "mine").touch()
    with pytest.raises(DumpMalformed, match="exists already"):
        layout.write(make_dump(RID, [1]))
    assert names(standing) == (["mine"] if filled else [])
    assert names(tmp_path) == [f"req_{RID}"]


def test_a_volume_that_fills_up_leaves_no_half_dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = RidLayout(tmp_path, make_card(), wait=0)

    def full(descriptor: int, buffers: list[memoryview]) -> None:
        os.write(descriptor, buffers[0])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ridlayout, "write_all", full)
    with pytest.raises(OSError, match="No space left"):
        layout.write(make_dump(RID, [1, 2]))
    assert names(tmp_path) == []


def test_leftovers_of_the_dead_go_and_those_of_the_living_stay(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for name in (f".tmp-{dead.pid}-0", f".tmp-{os.getppid()}-0", ".tmp-strange", f"req_{RID}"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "hidden.safetensors").touch()
    RidLayout(tmp_path, make_card())
    assert names(tmp_path) == [f".tmp-{os.getppid()}-0", f"req_{RID}"]


def test_the_directory_is_made_private(tmp_path: Path) -> None:
    RidLayout(tmp_path / "a" / "dumps", make_card())
    assert (tmp_path / "a" / "dumps").stat().st_mode & 0o777 == 0o700
