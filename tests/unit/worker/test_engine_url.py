"""The worker talks to the engine that it was given, and believes no answer that would send it elsewhere."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import trustme

from hsqueue.contracts.errors import EngineDown, EngineRefused, HsqueueError, RequestTimeout, UsageError
from hsworker import engine as engines
from hsworker.engine import EngineClient

Reply = tuple[int, dict[str, str], bytes]


@contextlib.contextmanager
def server(
    reply: Reply, tls: ssl.SSLContext | None = None, pages: Mapping[str, threading.Event] = MappingProxyType({})
) -> Iterator[tuple[str, list[str]]]:
    """A server that answers everything with `reply`; its URL, and what it was asked.

    pages: those that are answered only after an event; all are at the end.
    """
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked.append(f"{self.command} {self.path} {self.headers['Authorization'] or ''}".strip())
            if self.path in pages:
                pages[self.path].wait()
            status, headers, body = reply
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            with contextlib.suppress(OSError):
                self.end_headers()
                self.wfile.write(body)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *args: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        if tls is not None:
            http.socket = tls.wrap_socket(http.socket, server_side=True)
        try:
            yield f"http{'s' if tls else ''}://127.0.0.1:{http.server_port}", asked
        finally:
            for event in pages.values():
                event.set()
            http.shutdown()


OTHER: Reply = (200, {"Content-Type": "application/json"}, b'{"meta_info": {"id": "r", "prompt_tokens": 1}}')


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_followed_nowhere(status: int) -> None:
    with server(OTHER) as (elsewhere, asked), server((status, {"Location": f"{elsewhere}/generate"}, b"")) as (url, _):
        client = EngineClient(url)
        with pytest.raises(EngineRefused, match=str(status)):
            client.prefill("r", [1])
        assert not client.alive()
        with pytest.raises(EngineDown):
            client.server_info()
        client.abort("r")
    assert asked == []


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"])
def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with server(OTHER) as (proxy, seen), server(OTHER) as (url, asked):
        monkeypatch.setenv(name, proxy)
        EngineClient(url).prefill("r", [1])
    assert (seen, asked) == ([], ["POST /generate"])


def test_a_login_of_netrc_is_not_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password s3cret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    with server(OTHER) as (url, asked):
        EngineClient(url).prefill("r", [1])
    assert asked == ["POST /generate"]


def test_an_engine_may_have_a_path_before_its_pages() -> None:
    with server(OTHER) as (url, asked):
        EngineClient(f"{url}/engines/7/").prefill("r", [1])
    assert asked == ["POST /engines/7/generate"]


def test_no_answer_in_time_is_a_timeout_and_the_request_is_dropped() -> None:
    with server(OTHER, pages={"/generate": threading.Event()}) as (url, asked):
        with pytest.raises(RequestTimeout):
            EngineClient(url, timeout=0.2).prefill("r", [1])
        assert asked == ["POST /generate", "POST /abort_request"]


def test_an_answer_that_breaks_off_is_an_engine_that_is_down() -> None:
    with server((200, {"Content-Length": "1000"}, b'{"meta_info"')) as (url, _), pytest.raises(EngineDown):
        EngineClient(url).prefill("r", [1])


def test_a_refused_connection_is_no_timeout() -> None:
    with server(OTHER) as (url, _):
        pass
    with pytest.raises(EngineDown):
        EngineClient(url).prefill("r", [1])


def test_an_https_engine_needs_a_certificate_of_a_known_authority(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    with server(OTHER, tls) as (url, asked):
        with pytest.raises(EngineDown, match="SSLError"):
            EngineClient(url).prefill("r", [1])
        assert asked == []
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        EngineClient(url).prefill("r", [1])
    assert asked == ["POST /generate"]


@pytest.mark.parametrize(
    "url",
    [
        "", "localhost:1", "file:///etc/passwd", "ftp://h", "http://me:pw@h:1", "http://h:1?x=1", "http://h:1#x",
        "http://", "http://:1", "http://h:99999", "http://[::1", "http://a b",
    ],
)  # fmt: skip
def test_a_url_that_is_none_or_holds_a_password_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        EngineClient(url)
    assert "pw@" not in str(caught.value)


@pytest.mark.parametrize(
    "body", [b"", b"[", b"[" * 100_000, b"null", b"[]", b'"x"', b"\xff\xfe", b'{"meta_info": []}', b"9" * 10_000]
)
def test_an_answer_that_is_none_is_a_named_error(body: bytes) -> None:
    with server((200, {}, body)) as (url, _):
        client = EngineClient(url)
        with pytest.raises(HsqueueError):
            client.prefill("r", [1])
        if not body.startswith(b"{"):
            with pytest.raises(EngineDown):
                client.server_info()


def test_an_answer_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "ANSWER_LIMIT", 1 << 16)
    with server((200, {}, b" " * (1 << 20))) as (url, _), pytest.raises(EngineDown):
        EngineClient(url).prefill("r", [1])
