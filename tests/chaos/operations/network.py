"""The network between two processes: a relay that can lose it, and a cable that can be pulled."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hsqueue.local.processes import die_with_parent

RELAY = Path(__file__).with_name("relay.py")


@dataclass(frozen=True, slots=True)
class Proxy:
    """A running relay. host, port: where clients connect."""

    host: str
    port: int
    process: subprocess.Popen[str]

    def tell(self, command: str) -> None:
        """One of the commands of ``relay.py``; in force when this returns."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "ok\n", f"the relay refuses {command!r}"

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()


def start_proxy(host: str, port: int, to_host: str, to_port: int, prefix: Sequence[str] = ()) -> Proxy:
    """prefix: a command that runs it elsewhere, such as in a node's namespaces."""
    process = subprocess.Popen(
        [*prefix, sys.executable, "-S", str(RELAY), host, str(port), to_host, str(to_port)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", "the relay did not start"
    return Proxy(host, port, process)


@contextlib.contextmanager
def proxy(host: str, port: int, to_host: str, to_port: int) -> Iterator[Proxy]:
    started = start_proxy(host, port, to_host, to_port)
    try:
        yield started
    finally:
        started.stop()


@dataclass(frozen=True, slots=True)
class Relayed:
    """What passes the proxy meets `command` (``hold``, ``cut``, ``delay 0.5``) until it is undone."""

    proxy: Proxy
    command: str

    def apply(self) -> str:
        self.proxy.tell(self.command)
        return f"{self.command} at port {self.proxy.port}"

    def undo(self) -> None:
        self.proxy.tell("forward")


@dataclass(frozen=True, slots=True)
class Unplug:
    """Pulls a cable. link: takes ``up`` or ``down``."""

    name: str
    link: Callable[[str], None]

    def apply(self) -> str:
        self.link("down")
        return f"{self.name} has no network"

    def undo(self) -> None:
        self.link("up")
