from __future__ import annotations

import json
from pathlib import Path

import pytest

from hsworker.life import Pause
from hsworker.pause import read_pause, write_pause

FULL = Pause("volume", "/run", "it is full")


def test_a_pause_is_told_to_the_main_process(tmp_path: Path) -> None:
    path = tmp_path / "paused"
    assert read_pause(path) is None
    write_pause(path, FULL)
    assert read_pause(path) == FULL
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("text", ["", "{", "[]", "7", json.dumps("x"), "{}", '{"kind": 1}', "\x00"])
def test_a_damaged_pause_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "paused"
    path.write_text(text)
    assert read_pause(path) is None


@pytest.mark.parametrize("field", ["kind", "run_dir", "reason"])
def test_a_pause_whose_fields_are_no_text_is_none(tmp_path: Path, field: str) -> None:
    path = tmp_path / "paused"
    path.write_text(json.dumps({"kind": "engine", "run_dir": "", "reason": "gone", field: 7}))
    assert read_pause(path) is None


def test_a_pause_that_cannot_be_written_is_logged_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_pause(tmp_path / "absent" / "paused", FULL)
    assert "could not be paused" in caplog.text
    assert FULL.reason in caplog.text
