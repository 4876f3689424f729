"""``hsqueue doctor``: what would go wrong, before it does."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from hsqueue.cli.access import Run, open_ledger, open_run
from hsqueue.cli.console import say
from hsqueue.cli.exits import COMPLETE, FAULT
from hsqueue.contracts.errors import HsqueueError
from hsqueue.doctor.check import Check
from hsqueue.doctor.dumps import check_dump_directory
from hsqueue.doctor.engine import check_engine
from hsqueue.doctor.redis import check_redis
from hsqueue.doctor.volume import check_volume
from hsqueue.monitoring.snapshot import from_ledger, from_volume
from hsqueue.settings import Settings, load_settings

MARK = {"ok": "ok   ", "warn": "warn ", "bad": "BAD  "}


def register(app: typer.Typer) -> None:
    app.command()(doctor)


def doctor(
    engine: Annotated[str | None, typer.Option(help="URL of an SGLang server to check.")] = None,
    dump_dir: Annotated[Path | None, typer.Option(help="Its HSQ_DUMP_DIR.")] = None,
    volume: Annotated[Path | None, typer.Option(help="Directory on the shared volume.")] = None,
    run: Annotated[Path | None, typer.Option(help="A run that everything should fit.")] = None,
) -> None:
    """Check Redis, the volume, the engine, its dump directory and the clock, and say what to change."""
    settings = load_settings(dump_dir=dump_dir)
    checks: list[Check] = []
    opened = None
    if run is not None:
        try:
            opened = open_run(run)
        except HsqueueError as error:
            checks.append(Check.of("run", error))
    info = opened.info if opened is not None else None
    if settings.redis_url is not None:
        checks += check_redis(settings.redis_url.get_secret_value(), info)
    else:
        checks.append(Check("redis", "warn", "HSQ_REDIS_URL is not set; hsqueue run starts a Redis of its own"))
    if volume is not None or run is not None:
        checks += check_volume(volume or run or Path(), left(opened, settings))
    if engine is not None or dump_dir is not None:
        longest = info.fingerprint.max_length * info.fingerprint.target.bytes_per_token if info is not None else None
        checks += check_dump_directory(settings.dump_dir, settings.max_dump_bytes, longest)
    if engine is not None:
        checks += check_engine(engine, settings.dump_dir, info)
    for check in checks:
        say(f"{MARK[check.verdict]} {check.subject}: {check.text}")
        if check.do:
            say(f"      {check.do}")
    bad = any(check.verdict == "bad" for check in checks)
    raise typer.Exit(FAULT if bad else COMPLETE)


def left(run: Run | None, settings: Settings) -> int | None:
    """Bytes of states that the run has still to write, by its ledger, or by its files where none is at hand."""
    if run is None:
        return None
    snapshot = None
    # What is wrong with Redis is said by its own check.
    with contextlib.suppress(HsqueueError):
        ledger = open_ledger(settings, run)
        snapshot = from_ledger(ledger, run.info) if ledger is not None else None
    if snapshot is None:
        snapshot = from_volume(run.layout, run.info)
    return max(0, run.info.tokens - snapshot.tokens) * run.info.fingerprint.target.bytes_per_token
