"""Every way in which Redis can be of no use is one line that says what to do."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hsqueue.contracts.errors import RedisUnreachable, UsageError
from hsqueue.ledger import connect as connecting
from hsqueue.ledger.address import masked
from hsqueue.ledger.connect import connect, require_redis
from hsqueue.ledger.ledger import Ledger
from tests.support.ledger import INFO, SAMPLES, done, granted
from tests.support.redis import RedisServer, free_port, redis_server


def error_of(url: str) -> str:
    with pytest.raises(RedisUnreachable) as caught:
        require_redis(url)
    line = str(caught.value)
    assert "\n" not in line
    assert caught.value.do
    return line


@contextmanager
def listening(answer: bytes) -> Iterator[int]:
    """A port where something else than Redis answers every request with `answer`."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(4096)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def test_a_redis_that_answers_is_taken(redis: RedisServer) -> None:
    assert require_redis(redis.url).ping()


def test_a_wrong_password_is_named_and_not_shown(redis: RedisServer) -> None:
    line = error_of(f"redis://:wrong-secret@127.0.0.1:{redis.port}/0")
    assert "refuses the login" in line
    assert "wrong-secret" not in line


def test_a_missing_password_is_named(redis: RedisServer) -> None:
    assert "refuses the login" in error_of(f"redis://127.0.0.1:{redis.port}/0")


def test_a_port_where_nothing_listens_is_named() -> None:
    port = free_port()
    line = error_of(f"redis://:secret@127.0.0.1:{port}/0")
    assert f"127.0.0.1:{port}" in line
    assert "does not answer" in line
    assert "secret" not in line


def test_a_host_that_does_not_exist_is_named() -> None:
    assert "does not answer" in error_of("redis://redis.invalid:6379/0")


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"\x15\x03\x01\x00\x02\x02\x50"])
def test_something_else_than_redis_is_named(answer: bytes) -> None:
    with listening(answer) as port:
        error_of(f"redis://127.0.0.1:{port}/0")


@pytest.mark.parametrize("url", ["", "localhost:6379", "http://localhost", "redis://host:port/0", "redis://[::1"])
def test_a_url_that_is_none_is_a_usage_error(url: str) -> None:
    with pytest.raises(UsageError, match="HSQ_REDIS_URL"):
        connect(url)


@pytest.mark.parametrize(
    "url",
    ["redis://:p4ss@h:1/0", "redis://user:p4ss@h:1/0", "redis://:x%40p4ss@h/0", "redis://h:1/0?password=p4ss"],
)
def test_a_password_is_masked_wherever_it_stands(url: str) -> None:
    assert "p4ss" not in masked(url)
    assert "h" in masked(url)


def test_a_frozen_redis_is_given_up_in_bounded_time(redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "SOCKET_TIMEOUT", 0.2)
    redis.freeze()
    try:
        assert "does not answer" in error_of(redis.url)
    finally:
        redis.thaw()


def test_a_redis_that_may_evict_leases_is_refused(tmp_path: Path) -> None:
    with redis_server(tmp_path, "maxmemory 100mb", "maxmemory-policy allkeys-lru") as server:
        assert "maxmemory-policy" in error_of(server.url)


def test_a_redis_without_memory_is_named_by_the_ledger(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        ledger = Ledger(server.client(), server.url, "r1")
        ledger.create(INFO, (), (), ())
        lease = granted(ledger)
        ledger.client.config_set("maxmemory", "1")
        with pytest.raises(RedisUnreachable, match="used memory > 'maxmemory'") as caught:
            ledger.commit(lease, done(0, 1))
        assert "\n" not in str(caught.value)
        ledger.client.config_set("maxmemory", "0")
        assert ledger.counts(SAMPLES).pending == SAMPLES
        assert ledger.commit(lease, done(0, 1)) == 2


def test_a_ledger_whose_redis_died_says_so_and_goes_on_after_its_restart(tmp_path: Path) -> None:
    with redis_server(tmp_path, "appendfsync always") as server:
        ledger = Ledger(server.client(), server.url, "r1")
        ledger.create(INFO, (), (), ())
        lease = granted(ledger)
        server.kill()
        with pytest.raises(RedisUnreachable) as caught:
            ledger.commit(lease, done(0))
        assert "\n" not in str(caught.value)
        server.start()
        assert ledger.commit(lease, done(0)) == 1
        assert ledger.renew(lease, 60.0)
