"""The connection to Redis: bounded waits, a few retries, and one named error for everything that goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from hsqueue.contracts.errors import RedisUnreachable, UsageError
from hsqueue.ledger.address import SHAPE, masked, parse_redis_url

KEEPING = "noeviction"
SOCKET_TIMEOUT = 10.0
"""Seconds. Without one a half-open connection hangs its user for ever."""


@contextmanager
def redis_errors(url: str) -> Iterator[None]:
    """Turns Redis' errors into RedisUnreachable, one line that says what to do."""
    try:
        yield
    except redis.AuthenticationError as error:
        raise RedisUnreachable(
            f"Redis at {masked(url)} refuses the login ({error})", do="Put the right password into HSQ_REDIS_URL."
        ) from error
    except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
        raise RedisUnreachable(
            f"Redis at {masked(url)} does not answer ({str(error)[:120]})",
            do="Start it, or correct HSQ_REDIS_URL; what is done is safe on the volume.",
        ) from error
    except redis.ResponseError as error:
        raise RedisUnreachable(
            f"Redis at {masked(url)} refuses a command ({str(error)[:160]})",
            do="See ops/redis.conf for the settings that hsqueue needs.",
        ) from error
    except redis.RedisError as error:
        raise RedisUnreachable(
            f"{masked(url)} does not answer as Redis does ({str(error)[:120]})", do="Correct HSQ_REDIS_URL."
        ) from error


def connect(url: str, *, retries: int = 3) -> redis.Redis:
    """A client for `url`, not yet connected. retries: of a command whose connection broke.

    Raises UsageError for a URL that is none of Redis'.
    """
    address = parse_redis_url(url)
    try:
        return redis.Redis.from_url(
            address.url,
            decode_responses=True,
            socket_timeout=SOCKET_TIMEOUT,
            socket_connect_timeout=5.0,
            socket_keepalive=True,
            health_check_interval=5,
            client_name="hsqueue-ledger",
            retry=Retry(ExponentialBackoff(cap=1.0, base=0.05), retries),
            **(address.tls or {}),
        )
    except ValueError as error:
        raise UsageError(f"HSQ_REDIS_URL is not understood ({error})", do=f"Write it as {SHAPE}.") from None


def require_redis(url: str) -> redis.Redis:
    """A client that has answered once, of a Redis that keeps what it is given. Raises RedisUnreachable."""
    client = connect(url, retries=0)
    with redis_errors(url):
        client.ping()
        memory: dict[str, Any] = client.info("memory")
    policy = str(memory.get("maxmemory_policy", KEEPING))
    if policy != KEEPING and int(memory.get("maxmemory", 0)):
        raise RedisUnreachable(
            f"Redis at {masked(url)} may throw leases and messages away",
            expected=f"maxmemory-policy {KEEPING}",
            found=policy,
            do="Set it in its configuration; see ops/redis.conf.",
        )
    return connect(url)
