"""``hsqueue retry``: another chance for what was given up."""

from __future__ import annotations

from typing import Annotated

import typer

from hsqueue.cli import options as o
from hsqueue.cli.access import open_run, redis_url
from hsqueue.cli.console import plural, say
from hsqueue.contracts.sample import Ending
from hsqueue.ledger.connect import require_redis
from hsqueue.ledger.rebuild import reconcile
from hsqueue.settings import load_settings
from hsqueue.store.retry import retry as make_pending


def register(app: typer.Typer) -> None:
    app.command()(retry)


def retry(
    run: o.RunArgument,
    failed: Annotated[bool, typer.Option("--failed", help="Samples that failed.")] = False,
    skipped: Annotated[bool, typer.Option("--skipped", help="Samples that were skipped.")] = False,
) -> None:
    """Make failed (the default) or skipped samples pending again and send their shards."""
    from hsqueue.queue.app import make_app
    from hsqueue.queue.producer import enqueue

    endings = {e for e, wanted in ((Ending.FAILED, failed or not skipped), (Ending.SKIPPED, skipped)) if wanted}
    settings = load_settings()
    opened = open_run(run)
    url = redis_url(settings, opened)
    if url is None:
        count = make_pending(opened.layout, opened.info, None, endings)
        say(_told(count, "run the same hsqueue run command as before"))
        return
    ledger = reconcile(require_redis(url), url, opened.layout, opened.info).ledger
    count = make_pending(opened.layout, opened.info, ledger, endings)
    if count:
        enqueue(make_app(url), ledger, opened.info)
    say(_told(count, "sent"))


def _told(count: int, then: str) -> str:
    return f"{plural(count, 'sample')} pending again; {then}" if count else "nothing to retry"
