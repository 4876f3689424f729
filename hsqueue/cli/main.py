"""The entry point: gathers the commands, and maps every named error to one line and an exit status."""

from __future__ import annotations

import logging
import os
import signal
import sys

import typer

from hsqueue import __version__
from hsqueue.cli import (
    clean,
    doctor,
    engine,
    enqueue,
    exporter,
    flower,
    ledger,
    plan,
    report,
    retry,
    run,
    status,
    verify,
    worker,
)
from hsqueue.cli.console import err
from hsqueue.cli.exits import COMPLETE, FAULT, INCOMPLETE, USAGE, Interrupted
from hsqueue.contracts.errors import HsqueueError, UsageError
from hsqueue.logs import configure
from hsqueue.settings import load_settings

app = typer.Typer(
    name="hsqueue",
    help="Verified hidden states out of SGLang servers, for training EAGLE-3 drafters.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    epilog="Exit status: 0 complete, 1 a fault, 2 wrong usage, 3 incomplete.",
)
for module in (run, plan, enqueue, worker, engine, status, report, verify, retry, doctor, clean, flower, exporter):
    module.register(app)
app.add_typer(ledger.app, name="ledger")


def _version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit(COMPLETE)


@app.callback()
def common(
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Say more of what happens."),
    show_version: bool = typer.Option(  # noqa: ARG001 - its callback acts
        False, "--version", is_eager=True, callback=_version, help="Show the version."
    ),
) -> None:
    """Verified hidden states out of SGLang servers, for training EAGLE-3 drafters."""
    form, secrets = _log_settings()
    configure(form, logging.DEBUG if verbose else logging.WARNING, secrets)


def _log_settings() -> tuple[str, tuple[str, ...]]:
    """Form and secrets. Wrong settings are for the command to name, not for the line before it."""
    try:
        settings = load_settings()
    except (UsageError, ValueError):
        return os.environ.get("HSQ_LOG", "human"), ()
    return settings.log, settings.secrets


def _interrupt(*_: object) -> None:
    raise Interrupted


def main() -> None:
    """Runs the command line and exits with its status."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        app()
    except UsageError as error:
        err(str(error))
        sys.exit(USAGE)
    except HsqueueError as error:
        err(str(error))
        sys.exit(FAULT)
    except Interrupted:
        err("interrupted; what is done stays done, the same command goes on from there")
        sys.exit(INCOMPLETE)
    except BrokenPipeError:
        # The reader of our output went away, as head does; that is no fault.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
