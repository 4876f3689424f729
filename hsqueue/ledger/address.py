"""What ``HSQ_REDIS_URL`` says: where Redis is, and how its TLS is checked. Read alike for ledger and Celery."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from hsqueue.contracts.errors import UsageError

TLS_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
SHAPE = "redis://:PASSWORD@HOST:6379/0, or rediss:// with TLS"


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """url: without its query. tls: options of redis-py and of Celery's broker alike; None without TLS."""

    url: str
    tls: Mapping[str, Any] | None


def masked(url: str) -> str:
    """`url` with its password hidden, for messages."""
    parts = urlsplit(url)._replace(query="", fragment="")
    if parts.password is None:
        return urlunsplit(parts)
    host = parts.netloc.rsplit("@", 1)[-1]
    return urlunsplit(parts._replace(netloc=f"{parts.username or ''}:***@{host}"))


def parse_redis_url(url: str) -> RedisAddress:
    """Raises UsageError, which shows no password, for a URL that the ledger and Celery would not read alike."""
    try:
        parts = urlsplit(url)
        query, _ = dict(parse_qsl(parts.query, keep_blank_values=True)), parts.port
    except ValueError:
        # Python's own words would show the part of a password behind a slash.
        raise _not_understood("host or port cannot be read; a / in a password is written %2F") from None
    if parts.scheme not in ("redis", "rediss") or not parts.hostname:
        raise _not_understood("it names no host behind redis:// or rediss://")
    # The certificate is checked always; the words are accepted since other tools ask for them.
    if query.pop("ssl_cert_reqs", "required") != "required":
        raise _not_understood("TLS that takes any certificate protects nothing; ssl_cert_reqs can be required only")
    unknown = sorted(set(query) - set(TLS_FILES))
    if unknown:
        raise _not_understood(f"{unknown[0]} cannot stand behind its question mark, {', '.join(TLS_FILES)} can")
    if parts.scheme == "redis":
        if query:
            raise _not_understood("options of TLS need rediss://")
        return RedisAddress(url, None)
    for name, file in query.items():
        if not Path(file).is_file():
            raise _not_understood(f"{name} names {file}, which is no file here")
    tls = {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_check_hostname": True, **query}
    return RedisAddress(urlunsplit(parts._replace(query="", fragment="")), tls)


def _not_understood(why: str) -> UsageError:
    return UsageError(f"HSQ_REDIS_URL is not understood ({why})", do=f"Write it as {SHAPE}.")
