"""``hsqueue plan``: prompts to a run."""

from __future__ import annotations

from pathlib import Path

import typer

from hsqueue.cli import options as o
from hsqueue.cli.console import plural, say, warn
from hsqueue.contracts.errors import UsageError
from hsqueue.planning.plan import PlanResult, make_plan
from hsqueue.planning.rejects import rejection_summary
from hsqueue.settings import load_settings
from hsqueue.store.layout import RunLayout


def show_plan(result: PlanResult, root: Path) -> None:
    """What was planned, and every kind of line that was not."""
    report = result.report
    how = "planned" if result.made else "planned before"
    say(
        f"{how}: {plural(report.samples, 'sample')}, {plural(report.tokens, 'token')}, {plural(report.shards, 'shard')}"
    )
    if report.unsupervised:
        warn(f"{plural(report.unsupervised, 'sample')} without a supervised token; --min-loss-tokens 1 rejects them")
    rejected = sum(report.rejected.values())
    if rejected:
        warn(f"{plural(rejected, 'line')} rejected; all of them are listed in {RunLayout(root).rejected}")
        for line in rejection_summary(RunLayout(root).rejected):
            warn(f"  {line}")


def register(app: typer.Typer) -> None:
    app.command()(plan)


def plan(
    prompts: o.Prompts,
    out: o.Out,
    engine: o.EngineUrls = None,
    dump_dir: o.DumpDirs = None,
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
) -> None:
    """Make a run out of prompts. Reads what the engine is from --engine (on its node) or from --model."""
    settings = load_settings()
    if model is not None and (engine or dump_dir):
        raise UsageError("--model and --engine say the same thing twice", do="Give one of them.")
    directory = (dump_dir or [settings.dump_dir])[0] if engine or dump_dir else None
    target = o.plan_target(model, directory, layers, norm, dtype)
    result = make_plan(
        prompts,
        out.resolve(),
        target.target,
        o.load_tokenizer(target, tokenizer, chat_template),
        o.plan_options(target, max_length, min_loss_tokens, shard_size, ids),
    )
    show_plan(result, out.resolve())
    say(f"next: hsqueue enqueue {out}")
