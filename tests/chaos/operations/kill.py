"""kill -9: of a worker, a worker's child, an engine, Redis, a producer; whoever is found."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from tests.chaos.operations.processes import Find


@dataclass(frozen=True, slots=True)
class Kill:
    """kill -9 of everybody that `find` finds. Who starts them again is not the fault's concern."""

    find: Find

    def apply(self) -> str:
        killed = []
        for process in self.find():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
                killed.append(process.pid)
        return f"killed {' '.join(map(str, killed))}" if killed else ""

    def undo(self) -> None:
        return


@dataclass(frozen=True, slots=True)
class KillSoon:
    """Starts a command, such as a producer, and kills it -9 after `seconds`, unless it has ended by then."""

    start: Callable[[], subprocess.Popen[bytes]]
    seconds: float

    def apply(self) -> str:
        process = self.start()
        try:
            status = process.wait(self.seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return f"killed after {self.seconds:.2f} s"
        return f"had ended with status {status}"

    def undo(self) -> None:
        return
