"""ops/hsqueue.env explains every setting, shows the defaults that hold, and gives nothing secret away."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import pytest

from hscapture.config import CaptureSettings, from_environment
from hsqueue.settings import Settings, load_settings
from tests.support.plugin import PLUGIN

Variables = dict[str, tuple[str, bool]]


def test_names_every_setting(environment_file: Variables) -> None:
    settings = {f"HSQ_{name.upper()}" for name in Settings.model_fields} | PLUGIN.keys()
    assert sorted(settings - environment_file.keys()) == ["HSQ_DUMP_DIR"]


def test_names_every_setting_of_the_plugin() -> None:
    assert set(PLUGIN.values()) == {f.name for f in dataclasses.fields(CaptureSettings)} - {"dump_dir"}


def test_leaves_the_dump_directory_to_the_pairs(environment_file: Variables) -> None:
    assert "HSQ_DUMP_DIR" not in environment_file


def test_shows_the_defaults_of_settings(
    environment_file: Variables, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    empty = tmp_path / "empty.toml"
    empty.touch()
    monkeypatch.setenv("HSQ_CONFIG", str(empty))
    shown = {
        name: value
        for name, (value, active) in environment_file.items()
        if name.removeprefix("HSQ_").lower() in Settings.model_fields and value and not active
    }
    del shown["HSQ_REDIS_URL"]  # an example; the default is an embedded Redis
    assert len(shown) > 10
    for name, value in shown.items():
        monkeypatch.setenv(name, value)
    assert load_settings().model_dump() == {name: field.default for name, field in Settings.model_fields.items()}


def test_shows_the_defaults_of_the_plugin(environment_file: Variables) -> None:
    assert from_environment({name: environment_file[name][0] for name in PLUGIN}) == CaptureSettings()


def test_asks_for_what_has_no_default_and_holds_no_secret(environment_file: Variables) -> None:
    active = {name: value for name, (value, active) in environment_file.items() if active}
    assert active == dict.fromkeys(["HSQ_REDIS_PASSWORD", "HSQ_FLOWER_PASSWORD", "HSQ_VOLUME", "HSQ_MODEL"], "")


def test_explains_every_variable(root: Path) -> None:
    """A comment stands above each variable or above the group it belongs to."""
    lines = (root / "ops/hsqueue.env").read_text().splitlines()
    for above, line in itertools.pairwise(lines):
        if "=" in line and not line.startswith("# "):
            assert above.startswith("# ") or "=" in above, line
