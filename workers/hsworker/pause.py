"""How a worker's children tell its main process to pause: one small file beside the dumps."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict
from pathlib import Path

from hsworker.life import Pause

log = logging.getLogger(__name__)


def write_pause(path: Path, pause: Pause) -> None:
    """Where it cannot be written, the log says so: the worker then goes on, and meets the same trouble again."""
    temporary = path.with_suffix(f".{os.getpid()}")
    try:
        temporary.write_text(json.dumps(asdict(pause)))
        temporary.replace(path)
    except OSError as error:
        log.error("the worker could not be paused (%s): %s", error, pause.reason)


def read_pause(path: Path) -> Pause | None:
    """None where no pause is asked for, or by a damaged file."""
    try:
        found = json.loads(path.read_text())
        pause = Pause(found["kind"], found["run_dir"], found["reason"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return pause if all(isinstance(text, str) for text in asdict(pause).values()) else None
