"""``hsqueue ledger``: look into the ledger, or make it anew from the volume."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from hsqueue.cli import options as o
from hsqueue.cli.access import Run, open_ledger, open_run, require_url
from hsqueue.cli.console import plural, say
from hsqueue.contracts.errors import UsageError
from hsqueue.contracts.sample import GivenUp
from hsqueue.ledger.connect import require_redis
from hsqueue.ledger.rebuild import rebuild as make_anew
from hsqueue.planning.shards import read_shard
from hsqueue.settings import load_settings
from hsqueue.store.survey import survey, survey_shard

app = typer.Typer(help="Look into the ledger, or make it anew from the volume.", no_args_is_help=True)


@app.command()
def show(
    run: o.RunArgument,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """List every sample that was skipped or failed, with the reason."""
    opened = open_run(run)
    given_up = _given_up(opened)
    for index, given in sorted(given_up.items()):
        if as_json:
            fields = {"index": index, "ending": given.ending, "attempts": given.attempts,
                      "error": given.error, "detail": given.detail}  # fmt: skip
            print(json.dumps(fields))
        else:
            requests = plural(given.attempts, "request")
            say(f"sample {index} {given.ending} after {requests}: {given.error}: {given.detail}")
    if not given_up and not as_json:
        say("nothing was skipped and nothing failed")


def _given_up(opened: Run) -> dict[int, GivenUp]:
    ledger = open_ledger(load_settings(), opened)
    if ledger is not None:
        return ledger.given_up()
    return {g.index: g for state in survey(opened.layout, opened.info) for g in state.given_up}


@app.command()
def get(
    run: o.RunArgument,
    sample: Annotated[str, typer.Argument(help="A sample's index, or the id that the prompts give it.")],
) -> None:
    """Show where one sample stands: its index, its ending, its file."""
    opened = open_run(run)
    index = _find(opened, sample)
    shard = index // opened.info.fingerprint.shard_size
    ledger = open_ledger(load_settings(), opened)
    state = survey_shard(opened.layout, opened.info, shard)
    published = {d.index: d for d in state.done}.get(index)
    planned = next(s for s in read_shard(opened.layout.plan_shard(shard)) if s.index == index)
    say(f"sample {index} (id {planned.id}): shard {shard}, {plural(planned.tokens, 'token')}")
    if published is not None:
        say(f"  file {opened.layout.sample(shard, index)}, {published.bytes} bytes, digest {published.digest}")
    given = {g.index: g for g in state.given_up}.get(index)
    if ledger is not None:
        given = ledger.given_up([index]).get(index, given)
        say(f"  ledger: {'done' if ledger.is_done(index) else given.ending if given else 'pending'}")
    if given is not None and published is None:
        say(f"  {given.ending}: {given.error}: {given.detail}")


def _find(opened: Run, sample: str) -> int:
    if sample.isdigit() and int(sample) < opened.info.samples:
        return int(sample)
    for shard in range(opened.info.shards):
        for planned in read_shard(opened.layout.plan_shard(shard)):
            if planned.id == sample:
                return planned.index
    raise UsageError(
        f"no sample {sample!r} in this run",
        do=f"Give an index below {opened.info.samples}, or an id of the prompts.",
    )


@app.command()
def rebuild(run: o.RunArgument) -> None:
    """Make the ledger anew from the files. Leases of work in progress are void after it."""
    opened = open_run(run)
    url = require_url(load_settings(), opened)
    ledger = make_anew(require_redis(url), url, opened.layout, opened.info)
    counts = ledger.counts(opened.info.samples)
    say(f"rebuilt: {counts.done:,} done, {counts.skipped} skipped, {counts.failed} failed, {counts.pending:,} pending")
