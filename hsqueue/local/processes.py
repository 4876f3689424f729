"""Child processes that do not outlive their parent, restarted when they die, with bounded patience."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hsqueue.contracts.errors import StopError

log = logging.getLogger(__name__)

RESTART_LIMIT = 20
LONGEST_PAUSE = 30.0
USAGE = 2
"""Exit status that no restart can change."""
RESTART_WINDOW = 600.0
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def die_with_parent() -> None:
    """For ``preexec_fn``: the kernel ends this process when the thread that started it ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def free_port() -> int:
    """A port of the loopback interface that nothing listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class ProcessKeepsDying(StopError):
    """A process that hsqueue run starts dies again and again."""


@dataclass(slots=True)
class Child:
    """A supervised process. name: shown to people. log: receives its output."""

    name: str
    command: Sequence[str]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    deaths: list[float] = field(default_factory=list)
    not_before: float = 0.0

    def start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command,
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **self.environment},
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    def restart_if_dead(self) -> str | None:
        """Starts it again where it died. Returns what happened, for people. Raises ProcessKeepsDying."""
        if self.process is None or self.process.poll() is None or time.monotonic() < self.not_before:
            return None
        status = self.process.returncode
        now = time.monotonic()
        self.deaths = [t for t in self.deaths if now - t < RESTART_WINDOW] + [now]
        words = self.last_words()
        if status == USAGE:
            raise ProcessKeepsDying(f"{self.name} does not start: {words}", do=f"See {self.log}.")
        if len(self.deaths) > RESTART_LIMIT:
            raise ProcessKeepsDying(
                f"{self.name} died {len(self.deaths)} times within {RESTART_WINDOW / 60:.0f} minutes: {words}",
                do=f"See {self.log}. What is done stays done; run the command again once that is mended.",
            )
        # A process that cannot stay up is not started more often than every half a minute.
        self.not_before = now + min(LONGEST_PAUSE, 0.5 * 2 ** len(self.deaths))
        self.start()
        how = f"signal {-status}" if status < 0 else f"status {status}: {words}"
        return f"{self.name} died ({how}); started again"

    def last_words(self) -> str:
        """The last line of its log."""
        lines = self.log.read_text(errors="replace").split("\n") if self.log.exists() else []
        return next((line.strip()[-400:] for line in reversed(lines) if line.strip()), "it said nothing")

    def signal_end(self) -> None:
        """Asks the process to end, without waiting."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()

    def stop(self, patience: float) -> None:
        """Ends the process and all that it started. patience: seconds before it is killed."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(patience)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
