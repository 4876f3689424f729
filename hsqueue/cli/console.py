"""What people see: plain lines, figures that can be read, one place for style."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

stdout = Console(highlight=False, soft_wrap=True)
stderr = Console(stderr=True, highlight=False, soft_wrap=True)


def say(text: str) -> None:
    stdout.print(escape(_lines(text)))


def err(text: str) -> None:
    stderr.print(f"[bold red]hsqueue:[/] {escape(_lines(text))}")


def warn(text: str) -> None:
    stderr.print(f"[yellow]hsqueue:[/] {escape(_lines(text))}")


def printable(text: str) -> str:
    """`text` on one line, without what would steer a terminal: errors and names may come from anywhere."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


def readable_bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} TiB"


def readable_seconds(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 90:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
