"""``hsqueue engine``: the embedded engine."""

from __future__ import annotations

import os
import sys

import typer

from hsqueue.cli.options import default_model


def register(app: typer.Typer) -> None:
    app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})(
        engine
    )


def engine(context: typer.Context) -> None:
    """Run the embedded engine, a small CPU server with SGLang's /generate; see hsqueue engine --help."""
    if not {"--help", "-h"} & set(context.args):
        default_model()
    os.execv(sys.executable, [sys.executable, "-m", "hsengine", *context.args])
