"""A process that is started again when it dies, as systemd or Kubernetes would."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from hsqueue.local.processes import die_with_parent
from tests.chaos.operations.processes import Find, children_of, main_of, tree_of

RESTART_SECONDS = 0.5


@dataclass(slots=True)
class Service:
    """command: with the prefix of its node. log: receives its output. deaths: exit statuses so far."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    deaths: list[int] = field(default_factory=list)
    wanted: bool = False
    not_before: float = 0.0

    def start(self) -> None:
        self.wanted = True
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command, env=dict(self.environment), stdout=output, stderr=output, stdin=subprocess.DEVNULL,
                start_new_session=True, preexec_fn=die_with_parent,
            )  # fmt: skip

    def tick(self) -> None:
        """Starts it again, a moment after its death."""
        if not self.wanted or self.process is None or self.process.poll() is None:
            return
        if not self.not_before:
            self.deaths.append(self.process.returncode)
            self.not_before = time.monotonic() + RESTART_SECONDS
        elif time.monotonic() >= self.not_before:
            self.not_before = 0.0
            self.start()

    def stop(self) -> None:
        """Kills it and what it has forked, and leaves it dead."""
        self.wanted = False
        if self.process is None:
            return
        family = self.family()
        self.process.kill()
        self.process.wait()
        psutil.wait_procs(family, timeout=10)

    @property
    def main(self) -> Find:
        return main_of(lambda: self.process)

    @property
    def children(self) -> Find:
        return children_of(self.main)

    @property
    def family(self) -> Find:
        return tree_of(self.main)

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""
