"""The command line as users call it, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.engine import environment

QUICK: Mapping[str, str] = {"HSQ_LEASE_TTL": "5", "HSQ_REQUEUE_GRACE": "5"}
"""Short leases, so that tests do not wait a minute for a dead worker's."""


@dataclass(frozen=True, slots=True)
class Result:
    """status: exit status. out, err: what was printed."""

    status: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err

    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "hsqueue", *map(str, arguments)]


def hsqueue(
    *arguments: str | Path, env: Mapping[str, str] | None = None, timeout: float = 240, cwd: Path | None = None
) -> Result:
    """Runs one command to its end."""
    done = subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=timeout, check=False, cwd=cwd,
        env={**environment(), **QUICK, **(env or {})},
    )  # fmt: skip
    return Result(done.returncode, done.stdout, done.stderr)


def start(*arguments: str | Path, log: Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Starts a command as the leader of a process group of its own."""
    with log.open("ab") as output:
        return subprocess.Popen(
            command(*arguments), stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True,
            env={**environment(), **QUICK, **(env or {})},
        )  # fmt: skip
