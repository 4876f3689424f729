"""A run's state as one screen, for a terminal of any width and height: pure functions to what rich draws."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hsqueue.cli.console import printable, readable_bytes
from hsqueue.cli.words import View, clock, doing, dump_fill, failure, headline, hint, seen, share
from hsqueue.monitoring.snapshot import Snapshot
from hsqueue.monitoring.workers import GONE, PAUSED, WorkerState

WIDE = 92
"""Columns from which everything has its place in a row."""

WIDEST = 120
"""Columns that are used at most: what is too far apart is not read together."""


def screen(view: View, width: int, height: int, now: datetime) -> RenderableType:
    """width, height: of the terminal, characters; workers that do not fit are counted. now: local time."""
    s, inner = view.snapshot, min(width, WIDEST) - 2
    troubles = [Text(f"! {printable(trouble.text)}", style="bold red") for trouble in s.troubles]
    head: list[RenderableType] = [title(s, inner), bar(s, inner), *troubles, Text(), figures(s, inner, now)]
    tail: list[RenderableType] = []
    if view.failures:
        lines = [Text(failure(found), style="red") for found in view.failures]
        lines.append(Text(hint(s), style="dim"))
        for line in lines:
            line.truncate(inner, overflow="ellipsis")
        tail = [Text(), Text("newest failures", style="bold"), *lines]
    wrapped = sum(-(-len(line.plain) // max(1, inner - 8)) for line in troubles)
    used = 3 + wrapped + (2 if inner >= WIDE else 4) + len(tail)
    if s.workers:
        head += [Text(), workers(s, inner, height - used - 3)]
    return Padding(Group(*head, *tail), (0, 1))


def title(s: Snapshot, width: int) -> Text:
    style = "bold green" if s.ended and s.complete else "bold red" if s.ended or s.troubles else "bold"
    words = Text(headline(s), style=style)
    name = f"run {s.run}"
    space = width - len(words.plain) - len(name)
    return words + Text(" " * space + name, style="dim") if space >= 2 else words


def bar(s: Snapshot, width: int) -> Text:
    full = int(width * share(s))
    return Text("━" * full, style="green") + Text("─" * (width - full), style="dim")


def figures(s: Snapshot, width: int, now: datetime) -> Table:
    """Counts, speed and size, each a large word under a small one; in two rows where the terminal is narrow."""
    pace = s.pace
    cells = [
        ("done", f"{s.done:,}", "green"), ("pending", f"{s.pending:,}", ""),
        ("failed", f"{s.failed:,}", "bold red" if s.failed else "dim"),
        ("skipped", f"{s.skipped:,}", "yellow" if s.skipped else "dim"),
    ]  # fmt: skip
    if s.ended:
        cells += [("tokens/s, overall", f"{pace.overall:,.0f}", "bold")]
    else:
        left = "-" if pace.seconds_left is None else clock(now, pace.seconds_left)
        cells += [
            ("tokens/s, 5 min", f"{pace.recent:,.0f}", "bold"), ("since the start", f"{pace.overall:,.0f}", ""),
            ("done at about", left, ""),
        ]  # fmt: skip
    cells.append(("written", readable_bytes(s.bytes), ""))
    columns = len(cells) if width >= WIDE else 4
    table = Table.grid(padding=(0, 2 if width >= WIDE else 1, 0, 0))
    for _ in range(columns):
        table.add_column(no_wrap=True)
    for first in range(0, len(cells), columns):
        row = cells[first : first + columns]
        table.add_row(*(Text(name, style="dim") for name, _, _ in row))
        table.add_row(*(Text(value, style=style) for _, value, style in row))
    return table


def workers(s: Snapshot, width: int, rows: int) -> RenderableType:
    """Where not all fit, those in trouble first, then the slowest; the rest is counted. rows: lines for workers."""
    troubled = {trouble.worker for trouble in s.troubles}
    ranked = sorted(s.workers, key=lambda w: (w.name not in troubled, w.lives, w.tokens_per_second, w.name))
    shown = s.workers if len(ranked) <= rows else tuple(ranked[: max(1, rows - 1)])
    table = _wide(shown) if width >= WIDE else _narrow(shown)
    if len(shown) == len(ranked):
        return table
    return Group(table, Text(f"and {len(ranked) - len(shown)} more", style="dim"))


def _wide(shown: Sequence[WorkerState]) -> Table:
    table = _table("worker", "engine", "", figures=("tokens/s", "in flight", "dumps", "heard"))
    for w in shown:
        engine = Text(printable(w.engine).removeprefix("http://"))
        if w.gpu:
            engine.append(f"  {printable(w.gpu)}", style="dim")
        table.add_row(Text(printable(w.name)), engine, _doing(w), *_figures(w))
    return table


def _narrow(shown: Sequence[WorkerState]) -> Table:
    table = _table("worker", "", figures=("tokens/s", "asked", "dumps", "heard"))
    for w in shown:
        table.add_row(Text(printable(w.name)), _doing(w), *_figures(w))
    return table


def _table(*words: str, figures: Sequence[str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name in words:
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    for name in figures:
        table.add_column(name, no_wrap=True, justify="right", min_width=len(name))
    return table


def _figures(w: WorkerState) -> tuple[str, str, str, str]:
    heard = seen(w).removesuffix(" ago")
    return (f"{w.tokens_per_second:,.0f}", str(w.requests), dump_fill(w), heard) if w.lives else ("", "", "", heard)


def _doing(w: WorkerState) -> Text:
    style = "bold red" if w.state == GONE else "yellow" if w.state == PAUSED else ""
    return Text(doing(w), style=style)
