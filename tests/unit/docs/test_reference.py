"""docs/reference.md names every command, option, setting and default that exists, and none that does not."""

from __future__ import annotations

import dataclasses
import json
import logging
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from hscapture.config import from_environment
from hsengine.misbehave import Misbehaviour
from hsengine.options import parser
from hsqueue.cli import exits
from hsqueue.cli.main import app
from hsqueue.logs import FIELDS, JsonFormatter
from hsqueue.monitoring.pace import Pace
from hsqueue.monitoring.snapshot import Snapshot
from hsqueue.monitoring.troubles import KINDS, Trouble
from hsqueue.monitoring.workers import STATES, WorkerState
from hsqueue.settings import Settings, load_settings
from tests.support.plugin import PLUGIN
from tests.unit.docs.markdown import ROOT, codes, first_codes, headings, own, read, rows, section

PAGE = read("docs/reference.md")
CAPTURE = {"HSQ_DUMP_DIR": "dump_dir", **PLUGIN}


def commands(group: Any = None, before: str = "") -> Iterator[tuple[str, Any]]:
    """``(name, command)`` of every command, those of groups by their full name."""
    for name, command in (group or typer.main.get_command(app)).commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")
        else:
            yield before + name, command


COMMANDS = dict(commands())


def shown(default: object) -> str:
    """How the page writes a default."""
    if default is None:
        return "none"
    return "empty" if default == () else str(default)


def options(command: Any) -> dict[tuple[str, ...], Any]:
    found = [p for p in command.params if p.param_type_name == "option" and "--help" not in p.opts]
    return {tuple(p.opts): p for p in found}


def test_every_command_has_its_section() -> None:
    titles = [t.removeprefix("hsqueue ") for level, t in headings(PAGE) if level == 3 and t.startswith("hsqueue ")]
    assert sorted(titles) == sorted(COMMANDS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_options_of_a_command(name: str) -> None:
    text = own(PAGE, f"hsqueue {name}")
    written = {tuple(codes(row[0])): row[1] for row in rows(text) if row[0].startswith("`--")}
    real = {} if name == "engine" else options(COMMANDS[name])
    assert {frozenset(names) for names in written} == {frozenset(names) for names in real}
    for names, option in real.items():
        default = next(cell for key, cell in written.items() if set(key) == set(names))
        if option.required:
            assert default == "required", names
        elif option.default not in (None, False, "", ()):
            assert default == str(option.default), names


def test_options_of_hsqueue_itself() -> None:
    written = {tuple(codes(row[0])) for row in rows(own(PAGE, "Commands"))}
    assert written == {("--verbose", "-v"), ("--version",), ("--help",)}
    real = {names for names in options(typer.main.get_command(app)) if "--help" not in names}
    assert real == {("--verbose", "-v"), ("--version",)}


def test_fields_of_log_lines() -> None:
    text = own(PAGE, "Log lines")
    record = logging.LogRecord("a", logging.INFO, "b", 1, "c", None, (ValueError, ValueError("d"), None))
    record.__dict__.update(dict.fromkeys(FIELDS, "x"))
    assert sorted(first_codes(text)) == sorted(json.loads(JsonFormatter().format(record)))


def test_exit_statuses() -> None:
    written = {int(row[0]) for row in rows(own(PAGE, "Exit statuses"))}
    assert written == {value for name, value in vars(exits).items() if name.isupper()}


def test_settings_and_their_defaults() -> None:
    written = {codes(row[0])[0]: row[1].strip("`") for row in rows(own(PAGE, "Settings"))}
    real = {f"HSQ_{name.upper()}": shown(field.default) for name, field in Settings.model_fields.items()}
    assert written == real


def test_variables_of_the_capture_side() -> None:
    settings = from_environment({})
    assert set(CAPTURE.values()) == {field.name for field in dataclasses.fields(settings)}
    written = {codes(row[0])[0]: row[1].strip("`") for row in rows(section(PAGE, "The capture side"))}
    assert written == {name: shown(getattr(settings, field)) for name, field in CAPTURE.items()}


def test_every_variable_exists() -> None:
    """Nothing is named that no code reads."""
    source = "".join(
        path.read_text() for folder in ("hsqueue", "workers") for path in sorted((ROOT / folder).rglob("*.py"))
    )
    known = {f"HSQ_{name.upper()}" for name in Settings.model_fields} | set(re.findall(r"HSQ_[A-Z_]+[A-Z]", source))
    assert set(re.findall(r"HSQ_[A-Z_]+[A-Z]", PAGE)) <= known


def test_every_variable_of_the_code_is_named() -> None:
    literal = re.compile(r"[\"'](HSQ_[A-Z_]+[A-Z])[\"']")
    used = {
        name
        for folder in ("hsqueue", "workers")
        for path in (ROOT / folder).rglob("*.py")
        for name in literal.findall(path.read_text())
    }
    assert used <= set(re.findall(r"HSQ_[A-Z_]+[A-Z]", PAGE))


def test_settings_file_is_read_as_it_stands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    block = re.search(r"```toml\n(.*?)```", own(PAGE, "hsqueue.toml"), re.DOTALL)
    assert block
    table = tomllib.loads(block[1])
    assert table.keys() <= Settings.model_fields.keys()
    file = tmp_path / "hsqueue.toml"
    file.write_text(block[1])
    for name in Settings.model_fields:
        monkeypatch.delenv(f"HSQ_{name.upper()}", raising=False)
    monkeypatch.setenv("HSQ_CONFIG", str(file))
    settings = load_settings()
    assert settings.redis_url is not None
    assert settings.redis_url.get_secret_value() == table["redis_url"]
    assert [str(volume) for volume in settings.volumes] == table["volumes"]
    assert (settings.lease_ttl, settings.max_in_flight, settings.log) == (60.0, 128, "json")


def test_options_of_the_embedded_engine() -> None:
    written = {codes(row[0])[0]: row[1].strip("`") for row in rows(own(PAGE, "The embedded engine"))}
    real = {action.option_strings[-1]: action for action in parser()._actions if action.dest != "help"}
    assert written.keys() == real.keys()
    for name, action in real.items():
        if action.default not in (None, False):
            assert written[name] == str(action.default), name


def test_fields_of_misbehaviour() -> None:
    names = {bool: "true or false", int: "integer", tuple: "list of integers", float: "probability seconds"}
    table = {codes(row[0])[0]: row[1] for row in rows(own(PAGE, "Trouble on demand"))}
    assert table.keys() == {field.name for field in dataclasses.fields(Misbehaviour)}
    for field in dataclasses.fields(Misbehaviour):
        assert table[field.name] in names[type(field.default)], field.name


def test_keys_of_status() -> None:
    text = own(PAGE, "hsqueue status")
    keys = first_codes(text[text.index("Keys of the JSON") :])
    assert sorted(keys) == sorted(field.name for field in dataclasses.fields(Snapshot))
    for key, record in (("pace", Pace), ("troubles", Trouble)):
        row = next(row[1] for row in rows(text) if row[0] == f"`{key}`")
        assert codes(row)[: len(dataclasses.fields(record))] == [field.name for field in dataclasses.fields(record)]


def test_keys_of_a_worker_in_status() -> None:
    keys = first_codes(own(PAGE, "A worker in the JSON"))
    assert sorted(keys) == sorted(field.name for field in dataclasses.fields(WorkerState))
    states = next(row[1] for row in rows(own(PAGE, "A worker in the JSON")) if row[0] == "`state`")
    assert codes(states) == list(STATES)


def test_kinds_of_trouble() -> None:
    assert first_codes(own(PAGE, "A trouble in the JSON")) == list(KINDS)


def test_keys_of_ledger_show() -> None:
    row = next(row for row in rows(own(PAGE, "hsqueue ledger show")) if row[0] == "`--json`")
    assert codes(row[2]) == ["index", "ending", "attempts", "error", "detail"]
