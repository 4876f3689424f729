"""Flower's templates with our lines in them; a Flower that is another one is refused, not shown by halves."""

from __future__ import annotations

import shutil
from pathlib import Path

import flower
import pytest

from hsqueue.contracts.errors import UsageError
from hsqueue.monitoring.flower.loader import CHANGES, OURS, Loader

FLOWERS = Path(flower.__file__).parent / "templates"


def test_ours_hide_none_of_flowers() -> None:
    assert not {path.name for path in OURS.iterdir()} & {path.name for path in FLOWERS.iterdir()}


@pytest.mark.parametrize("name", sorted(path.name for path in [*FLOWERS.iterdir(), *OURS.iterdir()]))
def test_every_template_can_be_read(name: str) -> None:
    Loader(FLOWERS).load(name)


@pytest.mark.parametrize("name", CHANGES)
def test_another_flower_is_refused(name: str, tmp_path: Path) -> None:
    shutil.copytree(FLOWERS, tmp_path / "templates")
    changed = tmp_path / "templates" / name
    changed.write_text(changed.read_text().replace(CHANGES[name][0], "something else"))
    with pytest.raises(UsageError, match=rf"{name} is not the one .* Install flower>=2\.2"):
        Loader(tmp_path / "templates")


@pytest.mark.parametrize("path", sorted(OURS.iterdir()), ids=lambda path: path.name)
def test_no_page_writes_what_it_did_not_escape_or_runs_what_it_holds(path: Path) -> None:
    text = path.read_text()
    assert "{% raw" not in text
    assert "autoescape" not in text
    assert "<script>" not in text
    assert " on" not in {part[:3] for part in text.split("<")}
    assert "://" not in text, "nothing comes from another host"
