"""``hsqueue verify``: whether the files are what the run says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from hsqueue.cli import options as o
from hsqueue.cli.access import Run, open_ledger, open_run
from hsqueue.cli.console import err, plural, readable_bytes, say, stderr, warn
from hsqueue.cli.exits import COMPLETE, FAULT, INCOMPLETE
from hsqueue.settings import load_settings
from hsqueue.store.verify import Finding, Verification
from hsqueue.store.verify import verify as check

SHOWN = 20


def register(app: typer.Typer) -> None:
    app.command()(verify)


def verify(
    run: o.RunArgument,
    deep: Annotated[bool, typer.Option("--deep", help="Read every byte; compare checksums and token ids.")] = False,
    against: Annotated[
        Path | None, typer.Option(help="Model directory: recompute states with transformers and compare.")
    ] = None,
    count: Annotated[int, typer.Option(help="With --against: samples to recompute, spread evenly; 0: all.")] = 32,
    tolerance: Annotated[float, typer.Option(help="With --against: largest difference that passes.")] = 1e-3,
    repair: Annotated[bool, typer.Option("--repair", help="Ask again for what is wrong.")] = False,
) -> None:
    """Check every file. Exit status 0 clean and complete, 1 something is wrong, 3 clean so far."""
    opened = open_run(run)
    found = verify_with_progress(opened, deep=deep)
    show_verification(opened, found, deep=deep, repairing=repair)
    findings = found.findings
    if against is not None:
        findings += _recomputed(opened, against, count, tolerance, findings)
    status = FAULT if findings else INCOMPLETE if found.missing or found.unended else COMPLETE
    if findings and repair:
        from hsqueue.store.repair import repair as mend

        asked = mend(opened.layout, opened.info, open_ledger(load_settings(), opened), findings)
        say(f"repaired: {plural(asked, 'sample')} pending again; run the same command that made the run, or enqueue")
        status = INCOMPLETE
    raise typer.Exit(status)


def _recomputed(run: Run, model: Path, count: int, tolerance: float, known: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """What only the model itself can tell: right token ids over the states of another prompt."""
    from hsqueue.store.recompute import recompute

    damaged = {finding.index for finding in known if finding.index is not None}
    worst = recompute(run.layout, run.info, model, count, damaged)
    say(f"recomputed {plural(worst.samples, 'sample')}: {worst}")
    wrong = worst.findings(run.layout, run.info, tolerance)
    for finding in wrong[:SHOWN]:
        err(f"sample {finding.index}: {finding.problem}, more than {tolerance:g} ({finding.path})")
    return wrong


def verify_with_progress(run: Run, *, deep: bool) -> Verification:
    columns = (TextColumn("verifying"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal) as bar:
        task = bar.add_task("", total=run.info.samples)
        return check(run.layout, run.info, deep=deep, progress=lambda n: bar.advance(task, n))


def show_verification(run: Run, found: Verification, *, deep: bool, repairing: bool = False) -> None:
    how = "every byte read" if deep else "headers and lengths; --deep reads every byte"
    say(
        f"verified: {plural(found.good, 'file')} right, {plural(found.tokens, 'token')}, "
        f"{readable_bytes(found.bytes)} ({how})"
    )
    if found.given_up:
        say(f"  {plural(found.given_up, 'sample')} skipped or failed, see hsqueue ledger show {run.root}")
    if found.missing:
        warn(f"{plural(found.missing, 'sample')} without a right file: not extracted yet, or listed below")
    elif found.unended:
        warn(f"{plural(found.unended, 'shard')} without a manifest, every sample of which has ended")
    for finding in found.findings[:SHOWN]:
        err(f"{_whose(finding)}: {finding.problem} ({finding.path})")
    if len(found.findings) > SHOWN:
        err(f"and {len(found.findings) - SHOWN} more")
    if found.findings and not repairing:
        say(f"to ask for the wrong ones again: hsqueue verify {run.root} {'--deep ' if deep else ''}--repair")


def _whose(finding: Finding) -> str:
    if finding.shard is None:
        return "the run"
    return f"sample {finding.index}" if finding.index is not None else f"shard {finding.shard}"
