"""``hsqueue report``: a run as one page that stands alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hsqueue.cli import options as o
from hsqueue.cli.access import open_ledger, open_run
from hsqueue.cli.console import readable_bytes, say
from hsqueue.contracts.errors import UsageError
from hsqueue.report.gather import gather
from hsqueue.report.page import headline, page
from hsqueue.settings import load_settings


def register(app: typer.Typer) -> None:
    app.command()(report)


def report(
    run: o.RunArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page's file; replaced where it exists.")] = Path(
        "report.html"
    ),
) -> None:
    """Write one page that shows the run in pictures; it needs no server and no network to be read."""
    opened = open_run(run)
    found = gather(opened.layout, opened.info, open_ledger(load_settings(), opened))
    text = page(found).encode()
    write_whole(out, text)
    say(f"{headline(found)}. {out}, {readable_bytes(len(text))}")


def write_whole(path: Path, data: bytes) -> None:
    """Replaces `path` at once, so that a reader meets the old page or the new one. Raises UsageError."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UsageError(f"{path} cannot be written ({error.strerror})", do="Name another file with -o.") from None
