"""kombu's transport for Redis, with one error given its right name and no connection that nobody uses.

When Celery has closed a connection that broke, messages taken over it are still acknowledged, or given back, through
its channel. kombu 5.7 then raises AttributeError, which Celery takes for a bug and ends the worker, in the middle of
its shards. As a ConnectionError it is what Celery expects at such a moment: logged, and the worker connects anew.

A channel asks over its consuming connection whether Redis is there, and keeps it even where it only ever sends: one
idle connection for each child and each main process of each worker.
"""

from __future__ import annotations

from typing import Any

import redis
from kombu.transport import TRANSPORT_ALIASES
from kombu.transport.redis import Channel as RedisChannel
from kombu.transport.redis import Transport as RedisTransport


class Channel(RedisChannel):  # type: ignore[misc]
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Connected anew as soon as the channel consumes.
        self.async_pool.disconnect()

    def _connparams(self, *args: Any, **options: Any) -> Any:
        if getattr(self.connection, "client", None) is None:
            raise redis.ConnectionError("the channel's connection to Redis is closed")
        return super()._connparams(*args, **options)


class Transport(RedisTransport):  # type: ignore[misc]
    Channel = Channel


def install_transport() -> None:
    """For all connections of this process; by name, so that URLs stay what they are for logs and Flower."""
    for scheme in ("redis", "rediss"):
        TRANSPORT_ALIASES[scheme] = f"{__name__}:{Transport.__name__}"
