"""A Redis of a benchmark's own, with a run in its queue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hsqueue.contracts.fingerprint import RunInfo
from hsqueue.ledger.connect import connect
from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.rebuild import reconcile
from hsqueue.local.redis import EmbeddedRedis
from hsqueue.queue.app import make_app
from hsqueue.queue.producer import enqueue
from hsqueue.store.layout import RunLayout


@contextmanager
def redis_in(directory: Path) -> Iterator[EmbeddedRedis]:
    server = EmbeddedRedis(directory)
    try:
        yield server
    finally:
        server.stop()


def known(root: Path, info: RunInfo, url: str) -> Ledger:
    """The ledger of the run in `root`, made where Redis has none."""
    return reconcile(connect(url), url, RunLayout(root), info).ledger


def queue(ledger: Ledger, info: RunInfo) -> int:
    """Sends all that is not done; how many messages that took."""
    return enqueue(make_app(ledger.url), ledger, info)
