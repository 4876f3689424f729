"""TLS in front of a plain server, since the Redis that pip brings has none: a proxy, with certificates of a CA."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import trustme


def authority(path: Path) -> trustme.CA:
    """A CA of its own, whose certificate is written to `path`."""
    made = trustme.CA()
    made.cert_pem.write_to_path(path)
    return made


@contextlib.contextmanager
def tls_proxy(port: int, ca: trustme.CA, name: str = "127.0.0.1") -> Iterator[int]:
    """The port on which TLS is spoken for the plain server on `port`. name: that the certificate is for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert(name).configure_cert(context)
    loop = asyncio.new_event_loop()

    async def serve(client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        server, out = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(_pass_on(client, out), _pass_on(server, back))

    async def listen() -> asyncio.Server:
        return await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)

    loop.set_exception_handler(lambda *_: None)  # a refused handshake is what some tests want
    server = loop.run_until_complete(listen())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(server.close)
        asyncio.run_coroutine_threadsafe(_cancel_all(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(1 << 16):
            target.write(data)
            await target.drain()
    with contextlib.suppress(OSError):
        target.close()


async def _cancel_all() -> None:
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
        with contextlib.suppress(BaseException):
            await task
