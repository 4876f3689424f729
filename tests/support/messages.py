"""Celery messages as they lie in Redis."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any, cast

from hsqueue.contracts.fingerprint import RunInfo
from hsqueue.queue.app import queue_key
from tests.support.redis import RedisServer


@dataclass(frozen=True, slots=True)
class Waiting:
    """raw: the bytes in Redis. kwargs: of the task. id: of the task."""

    raw: bytes
    kwargs: dict[str, Any]
    id: str

    @property
    def shard(self) -> int:
        return int(self.kwargs["shard"])


def waiting(server: RedisServer, info: RunInfo) -> list[Waiting]:
    """The waiting messages of the run's queue, oldest first."""
    found = []
    client = server.client()
    for text in cast(list[str], client.lrange(queue_key(info.fingerprint.target.queue), 0, -1)):
        message = json.loads(text)
        _, kwargs, _ = json.loads(base64.b64decode(message["body"]))
        found.append(Waiting(text.encode(), kwargs, message["headers"]["id"]))
    client.close()
    return found[::-1]


def take_all(server: RedisServer, info: RunInfo) -> list[Waiting]:
    """Takes every message away, as a worker does, or as a crash does that loses it."""
    found = waiting(server, info)
    client = server.client()
    client.delete(queue_key(info.fingerprint.target.queue))
    client.close()
    return found
