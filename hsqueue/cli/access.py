"""How commands get at a run and at its Redis."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hsqueue.contracts.errors import UsageError
from hsqueue.contracts.fingerprint import RunInfo
from hsqueue.ledger.connect import require_redis
from hsqueue.ledger.ledger import Ledger
from hsqueue.local.redis import running_url
from hsqueue.planning.plan import load_run
from hsqueue.settings import Settings
from hsqueue.store.layout import RunLayout


@dataclass(frozen=True, slots=True)
class Run:
    """A run directory, opened. root: absolute."""

    root: Path
    info: RunInfo
    layout: RunLayout


def open_run(root: Path) -> Run:
    """Raises RunNotFound, RunDamaged."""
    root = root.resolve()
    return Run(root, load_run(root), RunLayout(root))


def redis_url(settings: Settings, run: Run | None) -> str | None:
    """The configured Redis, else the embedded one that runs for `run` at the moment."""
    if settings.redis_url is not None:
        return settings.redis_url.get_secret_value()
    return running_url(run.layout.redis) if run is not None else None


def require_url(settings: Settings, run: Run | None) -> str:
    """Raises UsageError where no Redis is configured and none runs for `run`."""
    url = redis_url(settings, run)
    if url is None:
        raise UsageError(
            "no Redis is configured and none runs for this run",
            do="Set HSQ_REDIS_URL to redis://:PASSWORD@HOST:6379/0; the one of hsqueue run lives only while it does.",
        )
    return url


def open_ledger(settings: Settings, run: Run) -> Ledger | None:
    """The ledger of `run`; None where no Redis is configured or running, or where it does not know the run.

    Raises RedisUnreachable where a configured one does not answer.
    """
    url = redis_url(settings, run)
    if url is None:
        return None
    ledger = Ledger(require_redis(url), url, run.info.run)
    return ledger if ledger.info() is not None else None
