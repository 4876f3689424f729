"""Starts a pinned worker: waits for its engine, proves that the dump directory is the engine's, then consumes."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import cast

import redis

from hsqueue.contracts.errors import UsageError
from hsqueue.ledger.connect import redis_errors, require_redis
from hsqueue.ledger.keys import RUNS
from hsqueue.ledger.ledger import Ledger
from hsqueue.settings import Settings
from hsworker.budget import SLOTS
from hsworker.dumps import sweep
from hsworker.engine import EngineClient
from hsworker.pinning import (
    Pin,
    check_engine,
    lock_dump_directory,
    probe,
    require_card,
    wait_for_engine,
)

OVERLAPPING_SHARDS = 2
CELERY_HEARTBEAT = 10
"""Seconds between Celery's events for Flower's own list of workers; all else goes by the signs of life in Redis."""


def run_worker(pin: Pin, settings: Settings, patience: float, say: Callable[[str], None], standby: bool = False) -> int:
    """Runs until told to stop. patience: seconds to wait for the engine. say: shows a line to the user.
    standby: where another worker has the engine, to wait until that one is gone.

    Returns the exit status. Raises the named errors of ``hsworker.pinning``, RedisUnreachable, UsageError.
    """
    if settings.redis_url is None:
        raise UsageError("a worker needs Redis", do="Set HSQ_REDIS_URL, as for the producer.")
    url = settings.redis_url.get_secret_value()
    client = require_redis(url)
    engine = EngineClient(pin.engine_url)
    wait_for_engine(engine, patience, say)
    require_card(engine, pin.dump_dir)
    told = f"worker {pin.name}: standing by; another worker has {pin.engine_url}"
    lock = lock_dump_directory(pin, (lambda: say(told)) if standby else None)
    # While this one stood by, the engine may have been restarted, or have died with the other worker.
    wait_for_engine(engine, patience, say)
    card = require_card(engine, pin.dump_dir)
    check_engine(engine, card)
    if pin.layout == "rid":
        sweep(pin.dump_dir, set(), 0.0)
        probe(engine, pin.dump_dir, card)
    _clear_former_life(pin, client, url)
    # An open connection would be inherited by every process of the worker, and used by none.
    client.close()
    say(f"worker {pin.name}: {card.server} at {pin.engine_url}, {card.model}, queue {card.target.queue}")
    os.environ.update(pin.to_environment())
    os.environ.setdefault("REMAP_SIGTERM", "SIGQUIT")
    from hsworker.celery import app

    # The lock is inherited by the worker's processes, so that it stands until the last of them is gone.
    os.set_inheritable(lock.fileno(), True)
    # The older layout's bookkeeping lives in one process, so its shards do not overlap.
    processes = OVERLAPPING_SHARDS if pin.layout == "rid" else 1
    assert processes <= SLOTS
    # Celery's banner is many lines, and none of them JSON.
    quiet = ["--quiet"] if settings.log == "json" else []
    app.worker_main(
        [
            *quiet, "worker", f"--concurrency={processes}", f"--queues={card.target.queue}",
            f"--hostname={pin.worker}", "--without-mingle", "--without-gossip",
            f"--heartbeat-interval={CELERY_HEARTBEAT}", "--loglevel=INFO",
        ]
    )  # fmt: skip
    return 0


def _clear_former_life(pin: Pin, client: redis.Redis, url: str) -> None:
    """Drops what this worker's former processes left: under the directory's lock none of them can be alive."""
    pin.pause_path.unlink(missing_ok=True)
    pin.stop_path.unlink(missing_ok=True)
    pin.budget_path.unlink(missing_ok=True)
    pin.gauges_path.unlink(missing_ok=True)
    with redis_errors(url):
        runs = cast(list[str], client.hkeys(RUNS))
    for run in runs:
        Ledger(client, url, run).reclaim(pin.owner)
