"""Namespaces of the kernel. Nothing in them has a name outside, so all of it goes with the test's processes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hsqueue.local.processes import die_with_parent

NEW_MOUNTS, NEW_NETWORK = 0x00020000, 0x40000000
BRIDGE, NETWORK = "hsq0", "10.77.0"
HEAD = f"{NETWORK}.1"
_LIBC = ctypes.CDLL(None, use_errno=True)


def require_namespaces() -> None:
    """Skips the test where this user may not make them."""
    tried = subprocess.run(["unshare", "--net", "--mount", "--uts", "true"], capture_output=True, check=False)
    if os.geteuid() != 0 or tried.returncode != 0:
        pytest.skip("network and mount namespaces need root")


def run(*command: str | Path) -> None:
    """A short command of the system. Raises RuntimeError with what it said."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")


def _call(name: str, *arguments: int) -> None:
    if getattr(_LIBC, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


@contextlib.contextmanager
def head_network() -> Iterator[None]:
    """This thread, and what it starts, is on a network of its own meanwhile: a bridge, as the node ``HEAD``.

    Mounts are private to this process from then on, for good: other threads may hold the former ones.
    """
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        _call("unshare", NEW_NETWORK | NEW_MOUNTS)
        try:
            run("mount", "--make-rprivate", "/")
            run("ip", "link", "set", "lo", "up")
            run("ip", "link", "add", BRIDGE, "type", "bridge")
            run("ip", "address", "add", f"{HEAD}/24", "dev", BRIDGE)
            run("ip", "link", "set", BRIDGE, "up")
            yield
        finally:
            _call("setns", before, NEW_NETWORK)
    finally:
        os.close(before)


@contextlib.contextmanager
def mounted(directory: Path, *options: str | Path) -> Iterator[Path]:
    """`directory` as a file system of its own. options: of ``mount``, such as ``-t tmpfs -o size=64m tmpfs``."""
    directory.mkdir(parents=True, exist_ok=True)
    run("mount", *options, directory)
    try:
        yield directory
    finally:
        run("umount", "--lazy", directory)


@dataclass(frozen=True, slots=True)
class Node:
    """A machine's worth of namespaces: its own address, host name and /dev/shm; files are those of the machine.

    port: of its cable at the bridge. holder: keeps the namespaces while it lives.
    """

    name: str
    address: str
    port: str
    holder: subprocess.Popen[bytes]

    @property
    def prefix(self) -> list[str]:
        """Of a command that runs in the node."""
        return ["nsenter", f"--target={self.holder.pid}", "--net", "--mount", "--uts", "--"]

    def path(self, path: str | Path) -> Path:
        """A file of the node, as it is reached from outside."""
        return Path(f"/proc/{self.holder.pid}/root{path}")

    def run(self, *command: str | Path) -> None:
        run(*self.prefix, *command)

    def cable(self, state: str) -> None:
        """state: ``up`` or ``down``. To be called by the thread that is on the head's network."""
        run("ip", "link", "set", self.port, state)

    def reaches(self, host: str, port: int) -> bool:
        """Whether a connection from the node comes about within a second."""
        script = f"import socket; socket.create_connection(({host!r}, {port}), timeout=1)"
        command = [*self.prefix, sys.executable, "-S", "-c", script]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


@contextlib.contextmanager
def node(number: int, shared_memory: str) -> Iterator[Node]:
    """A node on the bridge, ``10.77.0.<10 + number>``. shared_memory: size of its /dev/shm, such as ``64m``."""
    name, address, port = f"node{number}", f"{NETWORK}.{10 + number}", f"port{number}"
    script = (
        f"hostname {name} && mount -t tmpfs -o size={shared_memory} tmpfs /dev/shm && ip link set lo up"
        " && echo ready && exec cat"
    )
    holder = subprocess.Popen(
        ["unshare", "--net", "--mount", "--uts", "sh", "-c", script],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=die_with_parent,
    )  # fmt: skip
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n", "the node's namespaces could not be made"
        made = Node(name, address, port, holder)
        run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
        run("ip", "link", "set", port, "master", BRIDGE, "up")
        made.run("ip", "address", "add", f"{address}/24", "dev", "eth0")
        made.run("ip", "link", "set", "eth0", "up")
        yield made
    finally:
        holder.kill()
        holder.communicate()
