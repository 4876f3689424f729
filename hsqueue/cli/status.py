"""``hsqueue status``: how far, how fast, who works, what fails."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from datetime import datetime
from typing import Annotated

import typer

from hsqueue.cli import options as o
from hsqueue.cli.access import Run, open_ledger, open_run
from hsqueue.cli.console import say, stdout
from hsqueue.cli.exits import COMPLETE, INCOMPLETE, Interrupted
from hsqueue.cli.lines import Lines, status_lines
from hsqueue.cli.live import LiveScreen, draw
from hsqueue.cli.words import View, look
from hsqueue.ledger.ledger import Ledger
from hsqueue.monitoring.snapshot import from_volume
from hsqueue.settings import load_settings

WATCH_SECONDS = 1.0


def register(app: typer.Typer) -> None:
    app.command()(status)


def status(
    run: o.RunArgument,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on a line.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Redraw every second until the run has ended.")] = False,
) -> None:
    """Show how a run stands. Exit status 0 when it is complete, 3 when it is not."""
    opened = open_run(run)
    ledger = open_ledger(load_settings(), opened)
    view = _view(opened, ledger)
    if watch:
        view = _watch(opened, ledger, view, json)
    elif json:
        print(view.snapshot.to_json())
    elif stdout.is_terminal:
        draw(view)
    else:
        for line in status_lines(view, datetime.now()):
            say(line)
    raise typer.Exit(COMPLETE if view.snapshot.complete else INCOMPLETE)


def _view(run: Run, ledger: Ledger | None) -> View:
    return look(ledger, run.info) if ledger is not None else View(from_volume(run.layout, run.info))


def _watch(run: Run, ledger: Ledger | None, view: View, json: bool) -> View:
    """Shows the run until it has ended, or until it is interrupted. Returns what was shown last."""
    last = [view]

    def follow(show: Callable[[View], None]) -> None:
        with contextlib.suppress(Interrupted):
            show(last[0])
            while not last[0].snapshot.ended:
                time.sleep(WATCH_SECONDS)
                last[0] = _view(run, ledger)
                show(last[0])

    if json:
        follow(lambda view: print(view.snapshot.to_json(), flush=True))
    elif not stdout.is_terminal:
        follow(Lines().show)
    else:
        with LiveScreen(stdout, whole=True) as screen:
            follow(screen.show)
        draw(last[0])
    return last[0]
