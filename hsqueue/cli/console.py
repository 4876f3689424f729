"""What people see: plain lines, figures that can be read, one place for style."""

from __future__ import annotations

import logging
from collections.abc import Callable

from rich.console import Console
from rich.markup import escape

from hsqueue.wording import plural, readable_bytes, readable_seconds

__all__ = [
    "announcer",
    "err",
    "plural",
    "printable",
    "readable_bytes",
    "readable_seconds",
    "say",
    "stderr",
    "stdout",
    "warn",
]

stdout = Console(highlight=False, soft_wrap=True)
stderr = Console(stderr=True, highlight=False, soft_wrap=True)


def say(text: str) -> None:
    stdout.print(escape(_lines(text)))


def announcer(form: str) -> Callable[[str], None]:
    """What a service says of itself, among its log lines: a line for people, or one more event. form: of these."""
    return logging.getLogger("hsqueue").info if form == "json" else say


def err(text: str) -> None:
    stderr.print(f"[bold red]hsqueue:[/] {escape(_lines(text))}")


def warn(text: str) -> None:
    stderr.print(f"[yellow]hsqueue:[/] {escape(_lines(text))}")


def printable(text: str) -> str:
    """`text` on one line, without what would steer a terminal: errors and names may come from anywhere."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))
