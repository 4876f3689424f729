"""``hsqueue flower``: Celery's monitor in the browser, behind a password, on loopback."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from hsqueue.cli.access import open_run, require_url
from hsqueue.cli.console import say, warn
from hsqueue.contracts.errors import UsageError
from hsqueue.ledger.connect import require_redis
from hsqueue.local.processes import die_with_parent
from hsqueue.settings import load_settings

END_SECONDS = 3.0
OPENING = ("FLOWER_UNAUTHENTICATED_API", "FLOWER_DEBUG", "FLOWER_LOGGING")
"""Variables by which Flower would open its API, or show its settings with the password among them."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def register(app: typer.Typer) -> None:
    app.command()(flower)


def flower(
    run: Annotated[Path | None, typer.Argument(help="A run whose embedded Redis to watch.")] = None,
    port: Annotated[int, typer.Option(help="Port of the page.")] = 5555,
    address: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    read_only: Annotated[bool, typer.Option("--read-only", help="No buttons that change anything.")] = False,
) -> None:
    """Watch runs, workers and tasks in the browser. Always asks for a password; makes one if none is set."""
    settings = load_settings()
    url = require_url(settings, open_run(run) if run is not None else None)
    require_redis(url)
    password = settings.flower_password.get_secret_value() if settings.flower_password else ""
    if not password:
        password = secrets.token_urlsafe(12)
        say(f"user {settings.flower_user}, password {password} (set HSQ_FLOWER_PASSWORD to keep one)")
    if address not in LOOPBACK:
        warn(f"Flower listens on {address}: put TLS and a firewall before it, its password travels in the clear")
    _require_free(address, port)
    say(f"Flower: http://{address}:{port}, its runs: http://{address}:{port}/samples")
    # By the environment, since a command line can be read by every user of the machine.
    environment = {
        **{name: value for name, value in os.environ.items() if name not in OPENING},
        "HSQ_REDIS_URL": url,
        "FLOWER_BASIC_AUTH": f"{settings.flower_user}:{password}",
        "FLOWER_READ_ONLY": "true" if read_only else "false",
    }
    arguments = [
        sys.executable, "-m", "celery", "-A", "hsqueue.monitoring.flowerapp", "flower", f"--port={port}",
        f"--address={address}", "--max_tasks=10000", "--purge_offline_workers=300",
    ]  # fmt: skip
    raise typer.Exit(_run(arguments, environment))


def _require_free(address: str, port: int) -> None:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            raise UsageError(
                f"Flower cannot listen on {address}:{port} ({error.strerror})", do="Name another --port."
            ) from None


def _run(arguments: list[str], environment: dict[str, str]) -> int:
    """Flower as a child: asked to end, it may stay for a minute, so it is given a few seconds."""
    flower = subprocess.Popen(arguments, env=environment, start_new_session=True, preexec_fn=die_with_parent)
    try:
        return flower.wait()
    finally:
        flower.terminate()
        try:
            flower.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            flower.kill()
            flower.wait()
