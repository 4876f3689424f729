"""``hsqueue exporter``: metrics for Prometheus, from Redis alone."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated

import typer
from prometheus_client import CollectorRegistry, start_http_server

from hsqueue.cli.access import open_run, require_url
from hsqueue.cli.console import announcer, warn
from hsqueue.cli.flower import LOOPBACK
from hsqueue.contracts.errors import UsageError
from hsqueue.ledger.connect import require_redis
from hsqueue.logs import configure
from hsqueue.monitoring.exporter import Exporter
from hsqueue.settings import load_settings


def register(app: typer.Typer) -> None:
    app.command()(exporter)


def exporter(
    run: Annotated[Path | None, typer.Argument(help="A run whose embedded Redis to read.")] = None,
    port: Annotated[int, typer.Option(help="Port of the metrics.")] = 9808,
    address: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
) -> None:
    """Serve every run's and worker's figures to Prometheus, at /metrics."""
    settings = load_settings()
    configure(settings.log, "INFO", settings.secrets)
    url = require_url(settings, open_run(run) if run is not None else None)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Exporter(require_redis(url), url))
    try:
        _, thread = start_http_server(port, address, registry)
    except OSError as error:
        raise UsageError(
            f"the exporter cannot listen on {address}:{port} ({error.strerror})", do="Name another --port."
        ) from None
    if address not in LOOPBACK:
        warn(f"the exporter listens on {address}: whoever reaches it reads names of runs and workers")
    announcer(settings.log)(f"metrics: http://{address}:{port}/metrics")
    _wait_for(thread)


def _wait_for(thread: threading.Thread) -> None:
    """Until a signal ends the command."""
    while thread.is_alive():
        thread.join(1.0)
