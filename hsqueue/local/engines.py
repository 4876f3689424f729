"""Where the engines of a local run are: servers of the user's, or embedded ones that the run starts."""

from __future__ import annotations

import hashlib
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hsqueue.contracts.errors import UsageError
from hsqueue.contracts.target import Target
from hsqueue.local.processes import free_port

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - dumps belong in memory; the directory is named after the run
FALLBACK = Path("/tmp")  # noqa: S108 - where a machine has no /dev/shm


@dataclass(frozen=True, slots=True)
class EnginePlace:
    """name: shown to people. command: starts it; empty for a server that is not ours to start."""

    name: str
    url: str
    dump_dir: Path
    command: tuple[str, ...] = ()


def external_places(urls: Sequence[str], dump_dirs: Sequence[Path]) -> list[EnginePlace]:
    """Raises UsageError unless there is one dump directory for each URL."""
    for url in urls:
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"engine URL {url!r} is not understood", do="Write it as http://HOST:PORT.")
    if len(urls) != len(dump_dirs) or len(set(dump_dirs)) != len(dump_dirs):
        raise UsageError(
            "each --engine needs a --dump-dir of its own",
            expected=f"{len(urls)} different directories",
            found=f"{len(set(dump_dirs))}",
            do="Start each server with its own HSQ_DUMP_DIR and name them in the same order.",
        )
    return [
        EnginePlace(f"engine{k}", url, path.resolve())
        for k, (url, path) in enumerate(zip(urls, dump_dirs, strict=True))
    ]


def dump_root(root: Path) -> Path:
    """Directory in memory in which each embedded engine of the run in `root` has its dump directory."""
    base = SHARED_MEMORY if SHARED_MEMORY.is_dir() else FALLBACK
    return base / f"hsqueue-{hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:8]}"


def local_places(
    root: Path, count: int, target: Target, layers: str, dump_layout: str, options: str
) -> list[EnginePlace]:
    """`count` embedded engines for the run in `root`; options: more of ``hsqueue engine``'s, as a shell writes them."""
    try:
        more = shlex.split(options)
    except ValueError as error:
        raise UsageError(f"--engine-options {options!r} is not understood ({error})", do="Close its quotes.") from None
    places = []
    for k in range(count):
        port = free_port()
        dump_dir = dump_root(root) / f"engine{k}"
        command = (
            sys.executable, "-m", "hsengine", "--model", target.model, "--port", str(port), "--dump-dir", str(dump_dir),
            "--layers", layers, "--norm", target.norm, "--dtype", target.dtype, "--dump-layout", dump_layout,
            "--die-with-parent", *more,
        )  # fmt: skip
        places.append(EnginePlace(f"engine{k}", f"http://127.0.0.1:{port}", dump_dir, command))
    return places
