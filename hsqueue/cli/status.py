"""``hsqueue status``: how far, who works, what fails."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hsqueue.cli import options as o
from hsqueue.cli.access import Run, open_ledger, open_run
from hsqueue.cli.console import plural, readable_bytes, say, stdout
from hsqueue.cli.exits import COMPLETE, INCOMPLETE
from hsqueue.ledger.ledger import Ledger
from hsqueue.monitoring.snapshot import Snapshot, from_ledger, from_volume
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
    snapshot = _snapshot(opened, ledger)
    if watch and not json and stdout.is_terminal:
        snapshot = _watch(opened, ledger, snapshot)
    elif watch:
        snapshot = _lines(opened, ledger, snapshot, json)
    elif json:
        print(snapshot.to_json())
    else:
        for line in summary_lines(snapshot):
            say(line)
        _show_failures(ledger, snapshot)
    raise typer.Exit(COMPLETE if snapshot.complete else INCOMPLETE)


def _snapshot(run: Run, ledger: Ledger | None) -> Snapshot:
    return from_ledger(ledger, run.info) if ledger is not None else from_volume(run.layout, run.info)


def summary_lines(snapshot: Snapshot) -> list[str]:
    """The whole state in a few plain lines."""
    s = snapshot
    share = 100 * (s.total - s.pending) / s.total if s.total else 100.0
    head = "complete" if s.complete else f"{share:.1f}% of {plural(s.total, 'sample')} ended"
    lines = [
        f"run {s.run}: {head}",
        f"  {s.done:,} done, {s.skipped:,} skipped, {s.failed:,} failed, {s.pending:,} pending of {s.total:,}",
        f"  {s.shards_ended:,} of {plural(s.shards, 'shard')}, {plural(s.tokens, 'token')}, {readable_bytes(s.bytes)}",
    ]
    for worker in s.workers:
        doing = f"paused: {worker.paused}" if worker.paused else _shards(worker.shards)
        lines.append(f"  {worker.name} on {worker.engine}: {doing}, heard of {worker.seen:.0f} s ago")
    if s.pending and not s.workers:
        where = (
            "from the files on the volume; no Redis at hand knows the run"
            if s.source == "volume"
            else "no worker serves it"
        )
        lines.append(f"  ({where})")
    return lines


def _shards(shards: tuple[int, ...]) -> str:
    if not shards:
        return "waiting for work"
    return f"at shard {', '.join(map(str, shards))}"


def _show_failures(ledger: Ledger | None, snapshot: Snapshot) -> None:
    if ledger is None or not snapshot.failed + snapshot.skipped:
        return
    for index, given in sorted(ledger.given_up().items())[:5]:
        say(f"  sample {index} {given.ending} after {plural(given.attempts, 'request')}: {given.error}: {given.detail}")
    say("  all of them: hsqueue ledger show RUN; once mended: hsqueue retry RUN --failed")


def _ended(snapshot: Snapshot) -> bool:
    return snapshot.pending == 0 and snapshot.shards_ended == snapshot.shards


def _watch(run: Run, ledger: Ledger | None, snapshot: Snapshot) -> Snapshot:
    with Live(picture(snapshot, None), console=stdout, auto_refresh=False) as live:
        before, since = snapshot, time.monotonic()
        while not _ended(snapshot):
            time.sleep(WATCH_SECONDS)
            snapshot = _snapshot(run, ledger)
            rate = (snapshot.tokens - before.tokens) / (time.monotonic() - since)
            live.update(picture(snapshot, rate), refresh=True)
    return snapshot


def _lines(run: Run, ledger: Ledger | None, snapshot: Snapshot, json: bool) -> Snapshot:
    while True:
        print(snapshot.to_json() if json else summary_lines(snapshot)[1].strip(), flush=True)
        if _ended(snapshot):
            return snapshot
        time.sleep(WATCH_SECONDS)
        snapshot = _snapshot(run, ledger)


def picture(snapshot: Snapshot, rate: float | None) -> Group:
    """The state as one screen. rate: tokens a second, where known."""
    lines = summary_lines(snapshot)
    bar = ProgressBar(total=max(1, snapshot.total), completed=snapshot.total - snapshot.pending, width=60)
    table = Table.grid(padding=(0, 1))
    for line in lines[1:]:
        table.add_row(Text(line.strip()))
    speed = Text("" if rate is None else f"{rate:,.0f} tokens/s while watched")
    return Group(Text(lines[0], style="bold"), bar, table, speed)
