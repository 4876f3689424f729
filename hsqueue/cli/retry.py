"""``hsqueue retry``: another chance for what was given up."""

from __future__ import annotations

from typing import Annotated

import typer

from hsqueue.cli import options as o
from hsqueue.cli.access import open_run, require_url
from hsqueue.cli.console import plural, say
from hsqueue.contracts.errors import UsageError
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
    if settings.redis_url is None and opened.layout.redis.is_dir():
        count = make_pending(opened.layout, opened.info, None, endings)
        say(f"{plural(count, 'sample')} pending again; run the same hsqueue run command as before")
        return
    url = require_url(settings, opened)
    ledger = reconcile(require_redis(url), url, opened.layout, opened.info).ledger
    count = make_pending(opened.layout, opened.info, ledger, endings)
    if not count:
        raise UsageError(f"{run} has nothing to retry", do=f"See hsqueue status {run}.")
    enqueue(make_app(url), ledger, opened.info)
    say(f"{plural(count, 'sample')} pending again and sent")
