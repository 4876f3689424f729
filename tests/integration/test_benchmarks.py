"""Every benchmark can be asked for help, and many run to their end with small numbers, which then mean nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.engine import engine, environment

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
COMMANDS = sorted(path for path in BENCHMARKS.glob("*.py") if "__main__" in path.read_text())

HELP = """
import runpy, sys
for path in sys.argv[1:]:
    sys.argv[:] = [path, "--help"]
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as ended:
        assert not ended.code, path
    else:
        raise AssertionError(f"{path} knows no --help")
"""
SMALL = """
import importlib, prepared, steady, sys
prepared.ALONE_TOKENS, prepared.SHARD_TOKENS, prepared.WARM_UP, steady.VOLUME_FILE = 3000, 5000, 0.2, 1 << 16
importlib.import_module(sys.argv.pop(1)).main()
"""
"""Reads no more than that of a server, and begins to measure at once."""

# A server answers few prompts a second, so that those planned last.
SLOW, SETTINGS = {"slow": 1.0}, {"HSQ_MAX_IN_FLIGHT": "4"}
WORK = ("--seconds", "2", "--rate", "30000")


def run(directory: Path, *command: str | Path) -> str:
    """What it prints; it must end with status 0."""
    known = environment()
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=120, check=False, cwd=directory,
        env={**known, **SETTINGS, "PYTHONPATH": os.pathsep.join([str(BENCHMARKS), known["PYTHONPATH"]])},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def figures(directory: Path) -> object:
    return json.loads((directory / "figures.json").read_text())["figures"]


@pytest.fixture
def volume() -> Iterator[Path]:
    """In memory, as for most figures."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        yield Path(directory)


def test_each_says_how_it_is_called(tmp_path: Path) -> None:
    said = run(tmp_path, "-c", HELP, *COMMANDS)
    assert len(COMMANDS) > 15
    for path in COMMANDS:
        assert f"usage: {path.name}" in said
        assert f"python benchmarks/{path.name}" in said, "its first lines have the command"


@pytest.mark.parametrize(
    "arguments",
    [
        ("publish.py", "VOLUME", "--megabytes", "1", "--total", "4", "--rounds", "2"),
        ("report.py", "--shards", "20", "--samples", "5", "--directory", "VOLUME"),
        ("planning.py", "--conversations", "200", "--directory", "VOLUME"),
        ("planning.py", "--pretokenised", "500", "--directory", "VOLUME"),
        ("ledger.py", "--samples", "5000", "--open", "1000", "--resume", "3000", "--directory", "VOLUME"),
        ("monitoring.py", "VOLUME", "--rounds", "2", "--tokens", "8"),
        ("worker.py", "VOLUME", "--samples", "64", "--tokens", "16", "--shard", "8", "--hidden", "16"),
        ("engines.py", "VOLUME", "--engines", "2", "--tokens", "512", "--seconds", "2", "--pause", "0"),
    ],
    ids=lambda arguments: arguments[0] + arguments[1],
)
def test_it_runs_to_its_end(tmp_path: Path, volume: Path, arguments: tuple[str, ...]) -> None:
    name, *rest = (str(volume) if word == "VOLUME" else word for word in arguments)
    run(tmp_path, BENCHMARKS / name, *rest, "--json", "figures.json")
    assert figures(tmp_path)
    assert list(volume.iterdir()) == [], "it leaves nothing on the volume"


def test_a_workers_steady_state_beside_a_server(tmp_path: Path, volume: Path) -> None:
    with engine(tmp_path, misbehave=SLOW) as server:
        place = ("--url", server.url, "--dump-dir", server.dump_dir, "--out", volume)
        run(tmp_path, "-c", SMALL, "steady", *place, *WORK, "--workloads", "512", "--json", "figures.json")
    (found,) = figures(tmp_path)
    assert found["wrong"] == []
    assert found["tokens"] == 512 * found["samples"] > 0
    assert list(volume.iterdir()) == []


def test_two_servers_beside_one(tmp_path: Path, volume: Path) -> None:
    with engine(tmp_path, misbehave=SLOW, name="a") as a, engine(tmp_path, misbehave=SLOW, name="b") as b:
        places = ("--engine", a.url, a.dump_dir, "--engine", b.url, b.dump_dir, "--out", volume)
        run(tmp_path, "-c", SMALL, "scaling", *places, *WORK, "--workload", "512", "--json", "figures.json")
    (found,) = figures(tmp_path)
    assert found["wrong"] == []
    assert found["ratio"] > 1
