from __future__ import annotations

import os
from pathlib import Path

import pytest

from hsqueue.doctor.check import Check
from hsqueue.doctor.volume import check_free, check_speed, check_volume

GIB = 1 << 30


def of(directory: Path) -> list[Check]:
    return list(check_volume(directory, 1))


def test_a_good_volume_takes_everything_and_keeps_nothing(tmp_path: Path) -> None:
    found = of(tmp_path)
    assert found[0].verdict == "ok"
    assert "fsync, link and rename" in found[0].text
    assert len(found) == 3
    assert list(tmp_path.iterdir()) == []


def refuse(*_: object, **__: object) -> None:
    raise PermissionError(1, "Operation not permitted")


@pytest.mark.parametrize("name", ["link", "rename", "fsync"])
def test_what_the_volume_refuses_is_named_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(os, name, refuse)
    (found,) = of(tmp_path)
    assert found.verdict == "bad"
    assert "Operation not permitted" in found.text
    assert list(tmp_path.iterdir()) == []


def test_a_volume_that_is_away(tmp_path: Path) -> None:
    (found,) = of(tmp_path / "none")
    assert found.verdict == "bad"
    assert "is no directory. Mount" in found.text


def test_speed() -> None:
    assert check_speed(500e6, 0.01).verdict == "ok"
    assert "HSQ_PUBLISHERS" in check_speed(50e6, 0.01).do
    assert check_speed(500e6, 0.5).verdict == "warn"


def test_room() -> None:
    assert check_free(60 * GIB, None).verdict == "ok"
    assert "--run" in check_free(40 * GIB, None).do
    assert check_free(40 * GIB, 39 * GIB).verdict == "ok"
    assert "the run has 41.0 GiB to write" in check_free(40 * GIB, 41 * GIB).text
    assert check_free(40 * GIB, 41 * GIB).verdict == "warn"
