"""What tests and the processes that they started left on the machine."""

from __future__ import annotations

import os
from pathlib import Path

from hsqueue.local.engines import dump_root

FOREIGN = ("torchinductor_", "pymp-")
"""A cache of torch, and what multiprocessing leaves of processes that are killed."""


def left_in_temporary(place: Path) -> list[str]:
    """Names in `place` that are not of others' making."""
    return sorted(path.name for path in place.iterdir() if not path.name.startswith(FOREIGN))


def left_in_memory(base: Path) -> list[str]:
    """Runs below `base` whose embedded engines' dumps are still there."""
    roots = [Path(place) for place, _, files in os.walk(base) if "run.json" in files]
    return sorted(str(root.relative_to(base)) for root in roots if dump_root(root).exists())
