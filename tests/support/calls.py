"""Calls of the command line, as pages and files of others write them."""

from __future__ import annotations

import typer

from hsqueue.cli.main import app

COMMANDS = typer.main.get_command(app)


def misunderstood(words: str) -> str | None:
    """What the command line would not understand of a call, or None. ``hsqueue engine`` hands its options on."""
    parts = words.split()
    command, name = COMMANDS, ""
    while hasattr(command, "commands"):
        name = parts.pop(0)
        if name not in command.commands:
            return f"no command {name}"
        command = command.commands[name]
    known = {option for parameter in command.params for option in parameter.opts}
    unknown = [part for part in parts if part.startswith("-") and part not in known]
    return f"{name} has no {unknown[0]}" if unknown and name != "engine" else None
