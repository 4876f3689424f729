"""A real Redis, or Valkey, as a process of its own, with a password and data that survive a kill."""

from __future__ import annotations

import contextlib
import secrets
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import redis

from hsqueue.ledger.connect import connect
from hsqueue.local.processes import die_with_parent
from hsqueue.local.redis import find_binary
from tests.support.waiting import await_true, lives

CONFIG = """\
bind {host}
port {port}
requirepass {password}
dir {directory}
appendonly yes
appendfsync everysec
maxmemory-policy noeviction
save ""
loglevel warning
"""


@dataclass(slots=True)
class RedisServer:
    """directory: of its data. port, password: kept over restarts. options: more lines of its configuration.
    host: address that it listens on.
    """

    directory: Path
    port: int
    options: tuple[str, ...] = ()
    password: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    process: subprocess.Popen[bytes] | None = None
    host: str = "127.0.0.1"

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@{self.host}:{self.port}/0"

    def client(self) -> redis.Redis:
        """As hsqueue connects."""
        return connect(self.url)

    def start(self) -> None:
        """Starts it, on the data that are there, and waits until it answers."""
        config = self.directory / "redis.conf"
        text = CONFIG.format(host=self.host, port=self.port, password=self.password, directory=self.directory)
        config.write_text(text + "\n".join(self.options) + "\n")
        log = self.directory / "redis.log"
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [find_binary(), config], stdout=output, stderr=output, stdin=subprocess.DEVNULL,
                start_new_session=True, preexec_fn=die_with_parent,
            )  # fmt: skip
        probe = redis.Redis.from_url(self.url, socket_timeout=2)
        await_true(lambda: _answers(probe), "Redis does not answer", pause=0.01, meanwhile=lives(self.process, log))
        probe.close()

    def kill(self) -> None:
        """As a crash does; its data stay."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        """Keeps its connections open and answers nothing."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def redis_server(directory: Path, *options: str) -> Iterator[RedisServer]:
    """A server whose data lie in `directory`, ended by its own process id."""
    directory.mkdir(parents=True, exist_ok=True)
    server = RedisServer(directory.resolve(), free_port(), options)
    server.start()
    try:
        yield server
    finally:
        server.kill()


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
