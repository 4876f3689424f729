"""What the engine is asked to be, before anything heavy is imported."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

DTYPES = ("float32", "bfloat16")
LAYOUTS = ("rid", "counter")
FORMS = ("pt", "pt-files", "safetensors")


@dataclass(frozen=True, slots=True)
class Options:
    """model: a Hugging Face model directory, or None for the default model. port: 0 for any free one.
    dump_dir, layers, norm: None where the environment's ``HSQ_*`` variable, or its default, decides.
    counter_form: how the counter layout keeps states. prefill_tokens: rows of one forward pass.
    max_running: requests with keys and values in memory. chunk: rows of one prompt in one pass.
    threads: torch's. misbehave: JSON, see ``misbehave.Misbehaviour``.
    ready_file: written when the engine accepts requests.
    """

    model: Path | None
    host: str
    port: int
    dump_dir: Path | None
    layers: str | None
    norm: str | None
    dtype: str
    dump_layout: str
    counter_form: str
    prefill_tokens: int
    max_running: int
    chunk: int
    threads: int
    misbehave: str
    ready_file: Path | None
    die_with_parent: bool

    def environment(self) -> dict[str, str]:
        """The environment with what the command line overrides, for the capture's own settings."""
        given = {"HSQ_DUMP_DIR": self.dump_dir, "HSQ_LAYERS": self.layers, "HSQ_NORM": self.norm}
        return {**os.environ, **{name: str(value) for name, value in given.items() if value is not None}}


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="python -m hsengine",
        description="A small CPU server that speaks SGLang's /generate and dumps hidden states. "
        "'python -m hsengine model-dir' prints the default model's directory.",
    )
    add = found.add_argument
    add("--model", type=Path, help="Hugging Face model directory (default: a tiny built-in Llama)")
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=0, help="0: any free one (default)")
    add("--dump-dir", type=Path, help="where dumps go (default: $HSQ_DUMP_DIR or /dev/shm/sglang_hs)")
    add("--layers", help="eagle3, all or ids such as 2,4,5 (default: $HSQ_LAYERS or eagle3)")
    add("--norm", choices=("post", "pre", "both"), help="of the last state (default: $HSQ_NORM or post)")
    add("--dtype", choices=DTYPES, default="float32")
    add("--dump-layout", choices=LAYOUTS, default="rid", help="counter: as older scripts left dumps")
    add("--counter-form", choices=FORMS, default="pt", help="files of the counter layout")
    add("--prefill-tokens", type=positive, default=1024, help="rows of one forward pass (default 1024)")
    add("--max-running", type=positive, default=64, help="requests in memory at a time (default 64)")
    add("--chunk", type=positive, default=1024, help="rows of one prompt in one pass (default 1024)")
    add("--threads", type=positive, default=1, help="torch threads (default 1)")
    add("--misbehave", default="{}", help="JSON of troubles to cause, for tests")
    add("--ready-file", type=Path, help="written when the engine accepts requests")
    add("--die-with-parent", action="store_true", help="end when the starting process ends")
    return found


def parse(arguments: Sequence[str]) -> Options:
    """Exits with status 2 and a usage line where the arguments are wrong."""
    options = Options(**vars(parser().parse_args(arguments)))
    return replace(options, model=options.model and options.model.absolute())
