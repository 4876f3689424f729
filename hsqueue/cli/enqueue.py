"""``hsqueue enqueue``: sends what is not done."""

from __future__ import annotations

import typer

from hsqueue.cli import options as o
from hsqueue.cli.access import open_run, require_url
from hsqueue.cli.console import plural, say, warn
from hsqueue.cli.exits import COMPLETE
from hsqueue.ledger.connect import require_redis
from hsqueue.ledger.rebuild import Reconciled, reconcile
from hsqueue.settings import load_settings


def show_reconciled(reconciled: Reconciled) -> None:
    if reconciled.missing:
        warn(f"{plural(reconciled.missing, 'sample')} recorded as done without a whole file; asked for again")


def register(app: typer.Typer) -> None:
    app.command()(enqueue)


def enqueue(run: o.RunArgument) -> None:
    """Send every shard that has not ended to the queue of the workers whose engines fit."""
    from hsqueue.queue.app import make_app
    from hsqueue.queue.producer import enqueue as send

    settings = load_settings()
    opened = open_run(run)
    url = require_url(settings, opened)
    reconciled = reconcile(require_redis(url), url, opened.layout, opened.info)
    show_reconciled(reconciled)
    sent = send(make_app(url), reconciled.ledger, opened.info)
    left = opened.info.shards - len(reconciled.ledger.ended_shards(opened.info.shards))
    if not left:
        say(f"complete: every shard of {run} has ended")
        raise typer.Exit(COMPLETE)
    say(f"{plural(sent, 'shard')} sent, {left - sent} of {left} unfinished ones were queued or at work already")
    say(f"queue: {opened.info.fingerprint.target.queue}")
    say(f"next: hsqueue status {run} --watch")
