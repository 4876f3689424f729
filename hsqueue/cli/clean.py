"""``hsqueue clean``: removes what runs leave outside their results."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Annotated

import typer

from hsqueue.cli import options as o
from hsqueue.cli.access import open_ledger, open_run
from hsqueue.cli.console import plural, readable_bytes, say
from hsqueue.contracts.errors import UsageError, WorkerAlreadyPinned
from hsqueue.local.engines import dump_root
from hsqueue.local.redis import running_url
from hsqueue.monitoring.snapshot import worker_states_of
from hsqueue.settings import load_settings
from hsqueue.store.clean import remove_work_files


def register(app: typer.Typer) -> None:
    app.command()(clean)


def clean(
    run: o.RunArgument,
    ledger: Annotated[bool, typer.Option("--ledger", help="Also forget the run in Redis.")] = False,
    dumps: Annotated[Path | None, typer.Option(help="Also remove dumps of ours from this directory.")] = None,
) -> None:
    """Remove temporary and quarantined files, logs, data of embedded servers; never a result or the plan."""
    opened = open_run(run)
    if running_url(opened.layout.redis) is not None:
        raise UsageError(f"{run} is being run", do="Stop hsqueue run first.")
    known = open_ledger(load_settings(), opened) if ledger or load_settings().redis_url else None
    if known is not None:
        at_work = [w.name for w in worker_states_of(known, opened.info.fingerprint.target.queue) if w.shards]
        if at_work:
            raise UsageError(f"workers are at work on {run}: {', '.join(at_work)}", do="Stop them first.")
        if ledger:
            known.drop()
            say("the ledger's entries are removed; hsqueue enqueue makes them anew")
    _remove_own_dumps(run)
    files, size = remove_work_files(opened.layout)
    if dumps is not None:
        from hsworker.dumps import sweep

        say(f"{plural(sweep(dumps, set(), 0.0), 'dump')} removed from {dumps}")
    say(f"{plural(files, 'file')} removed, {readable_bytes(size)}; every result is where it was")


def _remove_own_dumps(run: Path) -> None:
    """Of embedded engines whose ``hsqueue run`` was killed: memory that nobody else gives back."""
    from hsworker.pinning import Pin, lock_dump_directory

    place = dump_root(run)
    for directory in place.glob("engine*"):
        try:
            with lock_dump_directory(Pin("", directory, "clean")):
                shutil.rmtree(directory)
        except WorkerAlreadyPinned:
            raise UsageError(f"{run} is being run", do="Stop hsqueue run first.") from None
        say(f"dumps of a killed hsqueue run are removed from {directory}")
    with contextlib.suppress(OSError):
        place.rmdir()
