"""A real server, started the way compose, systemd, Slurm and Kubernetes start it."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoPermissionError
from redis.retry import Retry

from hsqueue.queue.app import BROKER_PREFIX, make_app
from tests.support.waiting import await_true, lives

PASSWORD = "letters-and-digits-0123"
ONCE = Retry(NoBackoff(), 0)
Start = Callable[..., int]


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def start(root: Path, tmp_path: Path, redis_server: str) -> Iterator[Start]:
    """Starts a server with redis-start.sh and returns its port once it listens."""
    servers: list[subprocess.Popen[bytes]] = []

    def run(**environment: str) -> int:
        port = free_port()
        server = subprocess.Popen(
            [str(root / "ops/redis-start.sh"), str(root / "ops/redis.conf"), "--port", str(port)],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "REDIS_SERVER": redis_server, **environment},
            stdout=(tmp_path / "log").open("wb"),
            stderr=subprocess.STDOUT,
        )
        servers.append(server)
        await_true(lambda: listens(port), "Redis does not listen", meanwhile=lives(server, tmp_path / "log"))
        return port

    yield run
    for server in servers:
        server.terminate()
        server.wait(10)


def test_keeps_what_it_is_told_and_evicts_nothing(start: Start, tmp_path: Path) -> None:
    client = redis.Redis(port=start(HSQ_REDIS_PASSWORD=PASSWORD), password=PASSWORD, decode_responses=True)
    wanted = {
        "appendonly": "yes",
        "appendfsync": "everysec",
        "maxmemory-policy": "noeviction",
        "protected-mode": "yes",
        "save": "",
    }
    assert client.config_get(*wanted) == wanted
    assert (tmp_path / "appendonlydir").is_dir(), "the data belongs where Redis was started"


def test_refuses_a_client_without_the_password(start: Start) -> None:
    port = start(HSQ_REDIS_PASSWORD=PASSWORD)
    for password in (None, "wrong"):
        with pytest.raises(AuthenticationError):
            redis.Redis(port=port, password=password, retry=ONCE).ping()


def test_does_not_show_the_password(start: Start, tmp_path: Path) -> None:
    client = redis.Redis(port=start(HSQ_REDIS_PASSWORD=PASSWORD), password=PASSWORD, decode_responses=True)
    process = Path("/proc") / str(client.info("server")["process_id"])
    shown = process.joinpath("cmdline").read_bytes() + process.joinpath("environ").read_bytes()
    assert PASSWORD.encode() not in shown
    assert PASSWORD not in (tmp_path / "log").read_text()


@pytest.mark.parametrize("password", ["", "with space", "a@b", 'a"b', "a\nb"])
def test_refuses_a_password_that_would_break_elsewhere(root: Path, tmp_path: Path, password: str) -> None:
    done = subprocess.run(
        [str(root / "ops/redis-start.sh"), str(root / "ops/redis.conf")],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "REDIS_SERVER": "true", "HSQ_REDIS_PASSWORD": password},
        capture_output=True,
        text=True,
        timeout=10,
    )
    assert done.returncode != 0
    assert "password" in done.stderr.lower()


@pytest.fixture
def with_users(root: Path, tmp_path: Path, start: Start) -> str:
    """URL of a server that knows the users of the example, with a password in place of its zeros."""
    text = (root / "ops/redis-users.acl").read_text()
    assert text.count("0" * 64) == 1
    users = tmp_path / "users.acl"
    users.write_text(text.replace("0" * 64, hashlib.sha256(PASSWORD.encode()).hexdigest()))
    return f"redis://hsqueue:{PASSWORD}@127.0.0.1:{start(HSQ_REDIS_ACLFILE=str(users))}/0"


def test_lets_nobody_in_with_the_example_as_it_is(root: Path, start: Start) -> None:
    port = start(HSQ_REDIS_ACLFILE=str(root / "ops/redis-users.acl"))
    for user, password in ((None, None), ("hsqueue", ""), ("hsqueue", "0" * 64)):
        with pytest.raises(AuthenticationError):
            redis.Redis(port=port, username=user, password=password, retry=ONCE).ping()


def test_users_can_do_what_hsqueue_does(with_users: str) -> None:
    client = redis.Redis.from_url(with_users, decode_responses=True)
    client.hset("hsq:runs", "run", "/volume/run")
    assert client.eval("return redis.call('HGET', KEYS[1], 'run')", 1, "hsq:runs") == "/volume/run"
    assert client.info("memory")["maxmemory_policy"] == "noeviction"
    assert client.info("persistence")["aof_enabled"] == 1
    app = make_app(with_users)
    with app.connection_for_write() as connection, connection.SimpleQueue("hsq.q") as queue:
        queue.put({"shard": 1}, serializer="json")
        assert client.llen(f"{BROKER_PREFIX}hsq.q") == 1
        message = queue.get(timeout=5)
        assert message.payload == {"shard": 1}
        message.ack()
    # Remote control goes through a channel, under the same prefix.
    assert app.control.ping(timeout=0.2) == []


@pytest.mark.parametrize(
    "command",
    [["SET", "other", "1"], ["FLUSHALL"], ["CONFIG", "GET", "*"], ["SHUTDOWN"], ["KEYS", "*"]],
)
def test_users_can_do_no_more(with_users: str, command: list[str]) -> None:
    with pytest.raises(NoPermissionError):
        redis.Redis.from_url(with_users).execute_command(*command)  # type: ignore[no-untyped-call]
