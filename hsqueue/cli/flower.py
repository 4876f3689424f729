"""``hsqueue flower``: Celery's monitor in the browser, behind a password, on loopback."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from typing import Annotated

import typer

from hsqueue.cli.access import open_run, require_url
from hsqueue.cli.console import say, warn
from hsqueue.ledger.connect import require_redis
from hsqueue.settings import load_settings

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def register(app: typer.Typer) -> None:
    app.command()(flower)


def flower(
    run: Annotated[Path | None, typer.Argument(help="A run whose embedded Redis to watch.")] = None,
    port: Annotated[int, typer.Option(help="Port of the page.")] = 5555,
    address: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    read_only: Annotated[bool, typer.Option("--read-only", help="No buttons that change anything.")] = False,
) -> None:
    """Watch queue and workers in the browser. Always asks for a password; makes one if none is set."""
    settings = load_settings()
    url = require_url(settings, open_run(run) if run is not None else None)
    require_redis(url)
    password = settings.flower_password.get_secret_value() if settings.flower_password else ""
    if not password:
        password = secrets.token_urlsafe(12)
        say(f"user {settings.flower_user}, password {password} (set HSQ_FLOWER_PASSWORD to keep one)")
    if address not in LOOPBACK:
        warn(f"Flower listens on {address}: put TLS and a firewall before it, its password travels in the clear")
    say(f"Flower: http://{address}:{port}")
    # By the environment, since a command line can be read by every user of the machine.
    environment = {
        **os.environ,
        "HSQ_REDIS_URL": url,
        "FLOWER_BASIC_AUTH": f"{settings.flower_user}:{password}",
        "FLOWER_READ_ONLY": "true" if read_only else "false",
    }
    arguments = [
        sys.executable, "-m", "celery", "-A", "hsqueue.monitoring.flowerapp", "flower", f"--port={port}",
        f"--address={address}", "--max_tasks=10000", "--purge_offline_workers=300",
    ]  # fmt: skip
    os.execve(sys.executable, arguments, environment)
