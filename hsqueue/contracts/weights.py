"""Digest of a model directory: the same wherever it is mounted, another when its weights change.

The one module of the contracts that reads files, because planner, engine and plugin must compute it alike.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

SAMPLE_BYTES = 1 << 20
WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".gguf")


def weights_digest(model: Path, *, dummy: bool = False) -> str:
    """Digest of ``config.json`` and of each weight file's name, size, first and last MiB.

    Whole files of a large model would take minutes to read; a retrained or replaced model changes the
    sampled bytes of some file. dummy: the weights are random (SGLang's ``--load-format dummy``), only the
    configuration counts. Raises FileNotFoundError where there is no ``config.json``.
    """
    digest = hashlib.sha256((model / "config.json").read_bytes())
    if dummy:
        return "dummy-" + digest.hexdigest()[:16]
    for path in sorted(p for p in model.iterdir() if p.suffix in WEIGHT_SUFFIXES):
        size = path.stat().st_size
        digest.update(f"{path.name}:{size};".encode())
        with path.open("rb") as file:
            digest.update(file.read(SAMPLE_BYTES))
            if size > SAMPLE_BYTES:
                file.seek(max(SAMPLE_BYTES, size - SAMPLE_BYTES))
                digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()[:16]
