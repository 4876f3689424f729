"""Workers' signs of life in Redis. Their age is told by Redis' clock, whatever the clocks of the workers say."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import Any, cast

import redis

from hsqueue.ledger.keys import SIGNS, WORKERS

FORGOTTEN = 3600.0
"""Seconds of silence after which a worker is dropped."""

_BEAT = (files("hsqueue.ledger") / "scripts" / "beat.lua").read_text()


@dataclass(frozen=True, slots=True)
class Sign:
    """age: seconds since it was given. words: JSON of what the worker said; foreign input."""

    age: float
    words: str


def give_sign(client: redis.Redis, worker: str, words: str) -> None:
    """Raises redis.RedisError, as the others here do."""
    client.register_script(_BEAT)(keys=[WORKERS, SIGNS], args=[worker, words, int(FORGOTTEN * 1000)])


def take_sign_back(client: redis.Redis, worker: str) -> None:
    """The worker has ended in an orderly way."""
    with client.pipeline(transaction=True) as pipe:
        pipe.hdel(WORKERS, worker)
        pipe.zrem(SIGNS, worker)
        pipe.execute()


def ask_for_signs(pipe: Any) -> None:
    """Adds three commands to a pipeline; their replies are for ``read_signs``."""
    pipe.hgetall(WORKERS)
    pipe.zrange(SIGNS, 0, -1, withscores=True)
    pipe.time()


def read_signs(replies: Any) -> dict[str, Sign]:
    """By worker's name. One without a time, or with one in the future, is as old as can be or as new."""
    words, times, (seconds, micros) = replies
    now = seconds + micros / 1e6
    ages = {worker: max(0.0, now - score / 1000) for worker, score in times}
    found = {}
    for worker, said in cast(dict[str, str], words).items():
        age = ages.get(worker, FORGOTTEN)
        if age < FORGOTTEN:
            found[worker] = Sign(age, said)
    return found
