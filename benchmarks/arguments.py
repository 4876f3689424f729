"""Command-line options that benchmarks share."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

RATE = 45_000
"""Tokens/s of the server that is expected, unless told: those of an H200 with a model of 8B parameters."""


def parser(doc: str | None) -> argparse.ArgumentParser:
    """With ``--json FILE``. doc: of the benchmark's module, shown by ``--help``."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--json", type=Path, help="writes the figures to this file as well, anew after each of them")
    return made


def add_server(made: argparse.ArgumentParser) -> None:
    """A running server, the volume beside it, and how fast it is expected to be."""
    made.add_argument("--url", required=True)
    made.add_argument("--dump-dir", type=Path, required=True)
    add_volume(made)


def add_volume(made: argparse.ArgumentParser) -> None:
    made.add_argument("--out", type=Path, required=True, help="on the volume; what is published there is removed")


def add_work(made: argparse.ArgumentParser, workloads: Sequence[str], seconds: float) -> None:
    made.add_argument("--workloads", nargs="*", default=list(workloads))
    made.add_argument("--seconds", type=float, default=seconds)
    add_rate(made)


def add_rate(made: argparse.ArgumentParser) -> None:
    made.add_argument("--rate", type=float, default=RATE, help="tokens/s expected of a server, to plan enough prompts")
