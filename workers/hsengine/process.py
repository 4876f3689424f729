"""The process's ties to the operating system: its port, its parent, its end."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
from types import FrameType

from hsqueue.contracts.errors import UsageError

PR_SET_PDEATHSIG = 1


def bind(host: str, port: int) -> socket.socket:
    """A bound socket that does not listen yet, so that clients are refused until the engine is ready.

    port: 0 for any free one. Raises UsageError where the address cannot be had.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        server = socket.socket(family, kind, protocol)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(address)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {host}:{port} ({error.strerror or error})",
            do="Name another --port, or 0 for any free one.",
        ) from None
    return server


def die_with_parent() -> None:
    """Asks the kernel for SIGTERM when the thread that started this process ends. Linux only."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise UsageError(f"--die-with-parent does not work here ({os.strerror(ctypes.get_errno())})")


def exit_cleanly_on_signals() -> None:
    """SIGTERM and SIGINT end the process with status 0, through its ``finally`` blocks."""

    def leave(_: int, __: FrameType | None) -> None:
        sys.exit(0)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
