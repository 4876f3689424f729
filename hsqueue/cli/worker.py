"""``hsqueue worker``: a worker pinned to one engine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from hsqueue.cli.console import announcer
from hsqueue.logs import configure
from hsqueue.settings import load_settings


def register(app: typer.Typer) -> None:
    app.command()(worker)


def worker(
    engine: Annotated[str, typer.Option(help="URL of the SGLang server, http://HOST:PORT.")],
    dump_dir: Annotated[Path | None, typer.Option(help="The engine's HSQ_DUMP_DIR.")] = None,
    name: Annotated[str | None, typer.Option(help="Unique on this node. Default: from the port.")] = None,
    dump_layout: Annotated[str, typer.Option(help="rid, or counter for an older capture script.")] = "rid",
    max_in_flight: Annotated[int | None, typer.Option(help="Requests in flight on the engine.")] = None,
    wait: Annotated[float, typer.Option(help="Seconds to wait for the engine to come up.")] = 1800.0,
    standby: Annotated[bool, typer.Option("--standby", help="Wait while another worker has the engine.")] = False,
) -> None:
    """Serve one engine: send prompts, take the dumps whose content matches, publish them."""
    from hsworker.main import run_worker
    from hsworker.pinning import Pin

    settings = load_settings(dump_dir=dump_dir, max_in_flight=max_in_flight)
    configure(settings.log, "INFO", settings.secrets)
    if max_in_flight is not None:
        # The worker's processes read their settings anew.
        import os

        os.environ["HSQ_MAX_IN_FLIGHT"] = str(max_in_flight)
    pin = Pin(engine, settings.dump_dir.resolve(), name or f"gpu{urlsplit(engine).port or 0}", dump_layout)
    raise typer.Exit(run_worker(pin, settings, wait, announcer(settings.log), standby))
