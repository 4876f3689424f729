"""A channel whose connection was closed says so, by an error that Celery knows what to do with."""

from __future__ import annotations

import pytest
import redis

from hsqueue.queue.app import make_app
from hsqueue.queue.transport import Channel, Transport


@pytest.mark.parametrize("scheme", ["redis", "rediss"])
def test_every_connection_of_the_application_uses_it(scheme: str) -> None:
    connection = make_app(f"{scheme}://:secret@127.0.0.1:1/0").connection()
    assert isinstance(connection.transport, Transport)
    assert connection.transport.Channel is Channel
    assert connection.as_uri().startswith(f"{scheme}://")


@pytest.mark.parametrize("lost", ["connection", "client"])
def test_a_closed_connection_is_a_connection_error(lost: str) -> None:
    connection = make_app("redis://:secret@127.0.0.1:1/0").connection()
    channel = object.__new__(Channel)
    channel.connection = None if lost == "connection" else connection.transport
    if lost == "client":
        connection.transport.client = None
    with pytest.raises(redis.ConnectionError, match="is closed") as caught:
        channel._connparams()
    assert isinstance(caught.value, connection.connection_errors)
