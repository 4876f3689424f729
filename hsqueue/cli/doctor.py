"""``hsqueue doctor``: what would go wrong, before it does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hsqueue.cli.console import say
from hsqueue.cli.exits import COMPLETE, FAULT
from hsqueue.doctor.checks import Check, check_dump_directory, check_engine, check_redis, check_volume
from hsqueue.settings import load_settings

MARK = {"ok": "ok   ", "warn": "warn ", "bad": "BAD  "}


def register(app: typer.Typer) -> None:
    app.command()(doctor)


def doctor(
    engine: Annotated[str | None, typer.Option(help="URL of an SGLang server to check.")] = None,
    dump_dir: Annotated[Path | None, typer.Option(help="Its HSQ_DUMP_DIR.")] = None,
    volume: Annotated[Path | None, typer.Option(help="Directory on the shared volume.")] = None,
    run: Annotated[Path | None, typer.Option(help="A run that the engine should fit.")] = None,
) -> None:
    """Check Redis, the volume, the engine and its dump directory, and say what to change."""
    settings = load_settings(dump_dir=dump_dir)
    checks: list[Check] = []
    if settings.redis_url is not None:
        checks += check_redis(settings.redis_url.get_secret_value())
    else:
        checks.append(Check("redis", "warn", "HSQ_REDIS_URL is not set; hsqueue run starts a Redis of its own"))
    if volume is not None or run is not None:
        checks += check_volume(volume or run or Path())
    if engine is not None or dump_dir is not None:
        checks += check_dump_directory(settings.dump_dir, settings.max_dump_bytes)
    if engine is not None:
        checks += check_engine(engine, settings.dump_dir, run)
    for check in checks:
        say(f"{MARK[check.verdict]} {check.subject}: {check.text}")
        if check.do:
            say(f"      {check.do}")
    bad = any(check.verdict == "bad" for check in checks)
    raise typer.Exit(FAULT if bad else COMPLETE)
