from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hscapture.card import write_card
from hsqueue.contracts.card import EngineCard
from tests.unit.capture.states import make_card


def test_a_card_is_replaced_whole_and_read_back(tmp_path: Path) -> None:
    directory = tmp_path / "dumps"
    write_card(directory, make_card())
    second = replace(make_card(), instance="i2")
    path = write_card(directory, second)
    assert EngineCard.from_json(path.read_text()) == second
    assert [one.name for one in directory.iterdir()] == ["engine.json"]


def test_whoever_reaches_the_dumps_can_read_the_card(tmp_path: Path) -> None:
    assert write_card(tmp_path, make_card()).stat().st_mode & 0o777 == 0o644
