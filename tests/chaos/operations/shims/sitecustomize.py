"""Put before the standard library on a worker's PYTHONPATH: calls of the system that a test can make go wrong.

``$CHAOS_CONTROL`` names a JSON file, which need not exist and is read anew when it changes:
``fsync_seconds`` (each fsync takes so long), ``link_error`` (an errno that link raises after it has worked),
``clock_seconds`` (the wall clock is so far ahead). ``$CHAOS_LINKS`` names a file that receives every name that
``link`` has made.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

_fsync, _link, _time, _time_ns = os.fsync, os.link, time.time, time.time_ns
_control = Path(os.environ.get("CHAOS_CONTROL", "/nowhere"))
_links = Path(os.environ.get("CHAOS_LINKS", "/dev/null"))
_read: tuple[int, dict[str, float]] = (0, {})


def setting(name: str) -> float:
    global _read
    try:
        changed = _control.stat().st_mtime_ns
        if changed != _read[0]:
            _read = (changed, json.loads(_control.read_text()))
    except (OSError, ValueError):
        _read = (0, {})
    return _read[1].get(name, 0)


def fsync(descriptor: Any) -> None:
    # The fault itself: a slow disk.
    time.sleep(setting("fsync_seconds"))
    _fsync(descriptor)


def link(*arguments: Any, **options: Any) -> None:
    _link(*arguments, **options)
    with _links.open("a") as file:
        file.write(f"{arguments[1]}\n")
    error = int(setting("link_error"))
    if error:
        raise OSError(error, os.strerror(error))


if "CHAOS_CONTROL" in os.environ:
    os.fsync, os.link = fsync, link
    time.time = lambda: _time() + setting("clock_seconds")
    time.time_ns = lambda: _time_ns() + int(setting("clock_seconds") * 1e9)
