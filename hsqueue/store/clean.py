"""Removes what a run leaves beside its results."""

from __future__ import annotations

import shutil
from pathlib import Path

from hsqueue.store.files import volume_error
from hsqueue.store.layout import TEMPORARY_SUFFIX, RunLayout


def remove_work_files(layout: RunLayout) -> tuple[int, int]:
    """Removes temporary files, logs, quarantined files and the embedded Redis' data. Returns (files, bytes).

    Only for runs that nobody works on. Raises VolumeUnusable.
    """
    count = size = 0
    try:
        leftovers = (layout.samples.rglob, layout.manifests.rglob, layout.root.glob)
        for path in [path for find in leftovers for path in find(f".*{TEMPORARY_SUFFIX}")]:
            size += path.stat().st_size
            path.unlink()
            count += 1
        for directory in (layout.logs, layout.redis, layout.quarantine):
            files, total = _measure(directory)
            if directory.exists():
                shutil.rmtree(directory)
            count, size = count + files, size + total
    except OSError as error:
        raise volume_error(error, layout.root / "x") from error
    return count, size


def _measure(directory: Path) -> tuple[int, int]:
    sizes = [path.stat().st_size for path in directory.rglob("*") if path.is_file()]
    return len(sizes), sum(sizes)
