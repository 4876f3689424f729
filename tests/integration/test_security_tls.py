"""TLS to Redis: the ledger, Celery and Flower check the certificate, and none of them speaks in the clear."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

from hsqueue.contracts.errors import RedisUnreachable, UsageError
from hsqueue.ledger.address import parse_redis_url
from hsqueue.ledger.connect import require_redis
from hsqueue.queue.app import make_app
from tests.support.cli import hsqueue
from tests.support.flower import flower
from tests.support.prompts import published, token_prompts
from tests.support.redis import RedisServer, free_port
from tests.support.tls import authority, tls_proxy


@pytest.fixture
def ca(tmp_path: Path) -> trustme.CA:
    return authority(tmp_path / "ca.pem")


@pytest.fixture
def url(redis: RedisServer, ca: trustme.CA, tmp_path: Path) -> Iterator[str]:
    with tls_proxy(redis.port, ca) as port:
        yield f"rediss://:{redis.password}@127.0.0.1:{port}/0?ssl_ca_certs={tmp_path}/ca.pem"


def reaches_ledger(url: str) -> bool:
    """False where TLS fails; anything else that fails is raised."""
    try:
        return bool(require_redis(url).ping())
    except RedisUnreachable as error:
        if "certificate" not in str(error) and "SSL" not in str(error):
            raise
        return False


def reaches_broker(url: str) -> bool:
    with make_app(url).connection_for_write() as connection:
        try:
            return bool(connection.default_channel.client.ping())
        except Exception as error:
            if not re.search("certificate|SSL", f"{error!r} {error.__cause__!r} {error.__context__!r}"):
                raise
            return False


Reaches = Callable[[str], bool]
BOTH = pytest.mark.parametrize("reaches", [reaches_ledger, reaches_broker])


@BOTH
def test_the_right_authority_is_believed(url: str, reaches: Reaches) -> None:
    assert reaches(url)


@BOTH
def test_a_wrong_authority_is_refused(url: str, tmp_path: Path, reaches: Reaches) -> None:
    authority(tmp_path / "other.pem")
    assert not reaches(url.replace("ca.pem", "other.pem"))


@BOTH
def test_an_authority_that_the_system_does_not_know_is_refused(url: str, reaches: Reaches) -> None:
    assert not reaches(url.split("?")[0])


@BOTH
def test_a_certificate_for_another_host_is_refused(
    redis: RedisServer, ca: trustme.CA, url: str, reaches: Reaches
) -> None:
    with tls_proxy(redis.port, ca, "redis.example.org") as port:
        place = parse_redis_url(url).url.rsplit(":", 1)[1]
        assert not reaches(url.replace(f":{place}", f":{port}/0"))


@BOTH
def test_the_password_waits_for_the_certificate(tmp_path: Path, reaches: Reaches) -> None:
    """Whatever listens there in place of Redis and speaks no TLS learns nothing."""
    authority(tmp_path / "ca.pem")
    with eavesdropper() as (port, heard):
        assert not reaches(f"rediss://:s3cret@127.0.0.1:{port}/0?ssl_ca_certs={tmp_path}/ca.pem")
    assert heard
    assert b"s3cret" not in b"".join(heard)
    assert b"AUTH" not in b"".join(heard).upper()


@contextlib.contextmanager
def eavesdropper() -> Iterator[tuple[int, list[bytes]]]:
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def listen() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = server.accept()
                    with client:
                        heard.append(client.recv(4096))
                        client.sendall(b"-ERR unknown command\r\n")

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        yield server.getsockname()[1], heard
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("ssl_cert_reqs=none", "any certificate"), ("ssl_cert_reqs=optional", "any certificate"),
        ("ssl_check_hostname=false", "ssl_check_hostname cannot stand"), ("password=s3cret", "password cannot stand"),
        ("ssl_ca_certs=/absent.pem", "no file here"), ("socket_timeout=1", "socket_timeout cannot stand"),
    ],
)  # fmt: skip
def test_what_would_weaken_tls_or_show_a_password_is_refused(query: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        parse_redis_url(f"rediss://:s3cret@h:1/0?{query}")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("url", ["redis://:s3cret/x@h:1/0", "redis://:12/s3cret@h/0", "http://:s3cret@h", "redis://"])
def test_a_url_that_cannot_be_read_is_not_shown(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_redis_url(url)
    assert "s3cret" not in str(caught.value)


def test_a_whole_run_and_flower_over_tls(url: str, tmp_path: Path) -> None:
    root = tmp_path / "run"
    env = {"HSQ_REDIS_URL": url, "HSQ_FLOWER_PASSWORD": "of-flower"}
    port = free_port()
    with flower(port, tmp_path / "flower.log", env) as page:
        prompts = token_prompts(tmp_path / "prompts.jsonl", [20] * 12)
        result = hsqueue("run", prompts, "--out", root, "--shard-size", "4", env=env)
        assert result.status == 0, result.text
        assert published(root) == set(range(12))
        assert "gpu0@" in page("workers")
        assert "messages" in page("broker").lower()
    status = hsqueue("status", root, "--json", env=env)
    assert (status.status, status.json()["done"]) == (0, 12), status.text


def test_no_file_of_certificates_is_needed_where_the_system_knows_the_authority(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    assert reaches_ledger(url.split("?")[0])
    assert reaches_broker(url.split("?")[0])
