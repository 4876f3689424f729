"""SIGSTOP, as a machine that swaps or a virtual machine that is moved; thawed by ``undo``."""

from __future__ import annotations

import contextlib
import signal
from dataclasses import dataclass, field

import psutil

from tests.chaos.operations.processes import Find


@dataclass(slots=True)
class Freeze:
    """Stops everybody that `find` finds, parents first, so that none is reported dead or started anew meanwhile."""

    find: Find
    frozen: list[psutil.Process] = field(default_factory=list)

    def apply(self) -> str:
        for process in self.find():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGSTOP)
                self.frozen.append(process)
        return f"froze {' '.join(str(p.pid) for p in self.frozen)}" if self.frozen else ""

    def undo(self) -> None:
        for process in reversed(self.frozen):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)
        self.frozen.clear()
