"""Options that several commands share."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from hsqueue.contracts.errors import DependencyMissing, UsageError
from hsqueue.planning.plan import PlanOptions
from hsqueue.planning.target import PlanTarget, from_card, from_model, read_card
from hsqueue.planning.tokens import Tokenizer

RunArgument = Annotated[Path, typer.Argument(help="The run's directory.", metavar="RUN")]
Prompts = Annotated[list[Path], typer.Argument(help="JSONL (also .gz), Parquet, or directories of them.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="The run's directory, on the shared volume.")]
Model = Annotated[
    Path | None, typer.Option(help="Model directory that the engines serve. Default: hsqueue's tiny model.")
]
Layers = Annotated[str, typer.Option(help="eagle3, all, or ids as inputs of layers, such as 2,16,29.")]
Norm = Annotated[str, typer.Option(help="The last state's final norm: post, pre or both.")]
Dtype = Annotated[str | None, typer.Option(help="bfloat16, float16 or float32. Default: the model's own.")]
TokenizerOption = Annotated[
    Path | None, typer.Option("--tokenizer", help="Tokenizer directory. Default: the model's own.")
]
ChatTemplate = Annotated[Path | None, typer.Option(help="Jinja file used in place of the tokenizer's template.")]
MaxLength = Annotated[
    int | None, typer.Option(help="Tokens; longer records are rejected, never cut. Default: the model's limit.")
]
MinLossTokens = Annotated[int, typer.Option(help="Supervised tokens that a record needs.")]
ShardSize = Annotated[int, typer.Option(help="Samples a shard; one to three minutes of work each is best.")]
Ids = Annotated[str, typer.Option(help="required, or line: make ids from file and line.")]
EngineUrls = Annotated[list[str] | None, typer.Option("--engine", help="URL of an SGLang server; repeatable.")]
DumpDirs = Annotated[
    list[Path] | None, typer.Option("--dump-dir", help="That engine's HSQ_DUMP_DIR; one for each --engine.")
]


def default_model() -> Path:
    """Directory of the embedded engine's own tiny model, made on first use. Raises DependencyMissing."""
    if find_spec("torch") is None or find_spec("transformers") is None:
        raise DependencyMissing(
            "the embedded engine needs torch and transformers",
            do="Run pip install 'hsqueue[engine]', or name your servers with --engine URL.",
        )
    made = subprocess.run([sys.executable, "-m", "hsengine", "model-dir"], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise DependencyMissing(f"the embedded engine's model cannot be made: {made.stderr.strip()[-300:]}")
    return Path(made.stdout.strip())


def plan_target(model: Path | None, dump_dir: Path | None, layers: str, norm: str, dtype: str | None) -> PlanTarget:
    """What to plan for: the engine that writes to `dump_dir`, else the model, else the tiny one.

    Raises UsageError, DumpDirectoryNotShared, EngineUnfit, DependencyMissing.
    """
    if dump_dir is not None:
        return from_card(read_card(dump_dir))
    if model is not None:
        return from_model(model, layers, norm, dtype)
    return from_model(default_model(), layers, norm, dtype or "float32")


def plan_options(
    target: PlanTarget, max_length: int | None, min_loss_tokens: int, shard_size: int, ids: str
) -> PlanOptions:
    """Raises UsageError."""
    if ids not in ("required", "line"):
        raise UsageError(f"--ids {ids!r} is not understood", do="Say required or line.")
    if max_length is not None and max_length > target.context_length:
        raise UsageError(
            "--max-length is more than the model accepts",
            expected=f"at most {target.context_length}",
            found=max_length,
        )
    return PlanOptions(
        max_length=target.context_length if max_length is None else max_length,
        min_loss_tokens=min_loss_tokens,
        shard_size=shard_size,
        ids="line" if ids == "line" else "required",
    )


def load_tokenizer(target: PlanTarget, tokenizer: Path | None, template: Path | None) -> Tokenizer | None:
    """None where there is none: then every record has to hold input_ids. Raises UsageError, DependencyMissing."""
    directory = tokenizer or target.tokenizer
    if directory is None or not any(directory.glob("tokenizer*")):
        if tokenizer is not None:
            raise UsageError(f"{tokenizer} holds no tokenizer", do="Give a directory with tokenizer.json.")
        return None
    return Tokenizer.load(directory, template)
