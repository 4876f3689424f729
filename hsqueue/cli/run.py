"""``hsqueue run``: the whole job on this machine."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from hsqueue.cli import options as o
from hsqueue.cli.access import Run, open_run
from hsqueue.cli.console import err, plural, readable_bytes, readable_seconds, say, warn
from hsqueue.cli.enqueue import show_reconciled
from hsqueue.cli.exits import COMPLETE, FAULT, INCOMPLETE
from hsqueue.cli.plan import show_plan
from hsqueue.cli.progress import RunProgress
from hsqueue.cli.verify import show_verification, verify_with_progress
from hsqueue.cli.words import look
from hsqueue.contracts.errors import RunNotFound, UsageError
from hsqueue.ledger.connect import require_redis
from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.rebuild import reconcile
from hsqueue.local.engines import EnginePlace, external_places, local_places
from hsqueue.local.redis import EmbeddedRedis
from hsqueue.local.supervisor import Supervisor
from hsqueue.monitoring.snapshot import Snapshot, from_ledger
from hsqueue.planning.plan import PlanOptions, fingerprint_of, load_run, make_plan
from hsqueue.planning.target import PlanTarget, from_card, read_card
from hsqueue.planning.tokens import Tokenizer
from hsqueue.settings import Settings, load_settings

TICK_SECONDS = 0.5


def register(app: typer.Typer) -> None:
    app.command()(run)


def run(
    prompts: o.Prompts,
    out: o.Out,
    engine: o.EngineUrls = None,
    dump_dir: o.DumpDirs = None,
    engines: Annotated[int, typer.Option(min=1, max=64, help="Embedded engines, where no --engine is given.")] = 1,
    dump_layout: Annotated[str, typer.Option(help="rid, or counter for an older capture script.")] = "rid",
    model: o.Model = None,
    layers: o.Layers = "eagle3",
    norm: o.Norm = "post",
    dtype: o.Dtype = None,
    tokenizer: o.TokenizerOption = None,
    chat_template: o.ChatTemplate = None,
    max_length: o.MaxLength = None,
    min_loss_tokens: o.MinLossTokens = 0,
    shard_size: o.ShardSize = 512,
    ids: o.Ids = "required",
    deep: Annotated[bool, typer.Option("--deep", help="Read every byte when verifying at the end.")] = False,
    engine_options: Annotated[
        str, typer.Option(help="More options for the embedded engines, as one string; see hsqueue engine --help.")
    ] = "",
) -> None:
    """Plan, queue, extract, wait and verify on this machine. The same command again resumes."""
    settings = load_settings()
    if dump_layout not in ("rid", "counter"):
        raise UsageError(f"--dump-layout {dump_layout!r} is not known", do="Say rid or counter.")
    root = out.resolve()
    if engine:
        if model or dtype or layers != "eagle3" or norm != "post":
            raise UsageError(
                "--model, --layers, --norm and --dtype describe an embedded engine",
                do="Leave them out with --engine; the server's own hold.",
            )
        places = external_places(engine, dump_dir or [settings.dump_dir])
        target = _target_of(places)
    else:
        if dump_dir:
            raise UsageError("--dump-dir without --engine", do="Embedded engines choose their own directories.")
        target = o.plan_target(model, None, layers, norm, dtype)
        places = local_places(root, engines, target.target, layers, dump_layout, engine_options)
    plan_options = o.plan_options(target, max_length, min_loss_tokens, shard_size, ids)
    opened = _plan_or_resume(prompts, root, target, o.load_tokenizer(target, tokenizer, chat_template), plan_options)
    raise typer.Exit(_extract(opened, places, settings, dump_layout, deep))


def _target_of(places: list[EnginePlace]) -> PlanTarget:
    """What the engines are, by their cards; all must be alike. A complete run needs no living engine."""
    from hsworker.engine import EngineClient
    from hsworker.pinning import require_card

    targets = [from_card(require_card(EngineClient(place.url), place.dump_dir)) for place in places]
    for place, other in zip(places, targets, strict=True):
        different = targets[0].target.differences(other.target)
        if different:
            raise UsageError(
                f"{place.url} is another kind of engine than {places[0].url} ({', '.join(different)} differ)",
                do="A run needs engines of one kind.",
            )
    return targets[0]


def _plan_or_resume(
    prompts: list[Path], root: Path, target: PlanTarget, tokenizer: Tokenizer | None, options: PlanOptions
) -> Run:
    try:
        info = load_run(root)
    except RunNotFound:
        show_plan(make_plan(prompts, root, target.target, tokenizer, options), root)
        return open_run(root)
    info.fingerprint.require(fingerprint_of(prompts, target.target, tokenizer, options), root)
    say(f"resuming run {info.run}: {plural(info.samples, 'sample')}, {plural(info.tokens, 'token')}")
    return open_run(root)


def _extract(run: Run, places: list[EnginePlace], settings: Settings, dump_layout: str, deep: bool) -> int:
    embedded = EmbeddedRedis(run.layout.redis) if settings.redis_url is None else None
    try:
        url = embedded.url if embedded else settings.redis_url.get_secret_value()  # type: ignore[union-attr]
        reconciled = reconcile(require_redis(url), url, run.layout, run.info)
        show_reconciled(reconciled)
        began = time.monotonic()
        before = from_ledger(reconciled.ledger, run.info)
        if before.pending == 0 and before.shards_ended == before.shards:
            say("nothing left to do: every sample has ended")
        else:
            _require_engines(places)
            _work(run, places, settings, dump_layout, url, embedded, reconciled.ledger)
        after = from_ledger(reconciled.ledger, run.info)
    finally:
        if embedded:
            embedded.stop()
    return _conclude(run, before, after, time.monotonic() - began, deep)


def _require_engines(places: list[EnginePlace]) -> None:
    """Servers of the user's must be up before anything is queued for them. Raises EngineDown and what is worse."""
    from hsworker.engine import EngineClient
    from hsworker.pinning import check_engine

    for place in places:
        if not place.command:
            check_engine(EngineClient(place.url), read_card(place.dump_dir))


def _work(
    run: Run,
    places: list[EnginePlace],
    settings: Settings,
    dump_layout: str,
    url: str,
    embedded: EmbeddedRedis | None,
    ledger: Ledger,
) -> None:
    """Runs engines and workers until every shard has ended."""
    what = "the worker" if len(places) == 1 else f"{len(places)} workers"
    say(f"starting {what}{' and embedded engines' if places[0].command else ''}; logs in {run.layout.logs}")
    supervisor = Supervisor(run.layout, run.info, places, settings, dump_layout, url, embedded)
    with supervisor, RunProgress() as progress:
        while True:
            for event in supervisor.tick():
                progress.tell(event)
            view = look(ledger, run.info)
            progress.show(view)
            if view.snapshot.shards_ended == view.snapshot.shards:
                return
            time.sleep(TICK_SECONDS)


def _conclude(run: Run, before: Snapshot, after: Snapshot, seconds: float, deep: bool) -> int:
    tokens = after.tokens - before.tokens
    if tokens:
        say(
            f"extracted {plural(after.done - before.done, 'sample')}, {plural(tokens, 'token')} in "
            f"{readable_seconds(seconds)} ({tokens / seconds:,.0f} tokens/s)"
        )
    found = verify_with_progress(run, deep=deep)
    show_verification(run, found, deep=deep)
    if after.skipped:
        warn(f"{plural(after.skipped, 'sample')} skipped; why: hsqueue ledger show {run.root}")
    if after.failed:
        err(
            f"{plural(after.failed, 'sample')} failed; why: hsqueue ledger show {run.root}; "
            f"again: hsqueue retry {run.root}"
        )
    if not found.clean:
        return FAULT
    if not after.complete:
        return INCOMPLETE
    say(f"complete: {plural(after.done, 'file')}, {readable_bytes(found.bytes)} in {run.layout.samples}")
    return COMPLETE
