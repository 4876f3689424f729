"""A lock in Redis that stands while its holder lives, and not for long after it died."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import redis

from hsqueue.ledger.connect import redis_errors

TTL_SECONDS = 15.0


@contextlib.contextmanager
def try_lock(client: redis.Redis, url: str, key: str, ttl: float = TTL_SECONDS) -> Iterator[bool]:
    """Whether this process has the lock `key` within the block; never waits for it. url: named in errors.

    ttl: seconds that the lock stands without renewal; it is renewed at a third of it. Where Redis forgets the lock
    meanwhile, another may get it: what is done under it has to bear that. Raises RedisUnreachable.
    """
    lock = client.lock(key, timeout=ttl, thread_local=False)
    with redis_errors(url):
        mine = bool(lock.acquire(blocking=False))
    if not mine:
        yield False
        return
    done = threading.Event()

    def renew() -> None:
        while not done.wait(ttl / 3):
            with contextlib.suppress(redis.RedisError):
                lock.reacquire()

    renewing = threading.Thread(target=renew, name=f"lock-{key}", daemon=True)
    renewing.start()
    try:
        yield True
    finally:
        done.set()
        renewing.join()
        # A lock that is gone or another's by now is left alone.
        with contextlib.suppress(redis.RedisError):
            lock.release()
