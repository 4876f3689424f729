"""What capture complains of: in the server's log, and in a file that the worker can read."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from hsqueue.contracts.complaint import COMPLAINT_NAME, Complaint
from hsqueue.contracts.errors import HsqueueError

log = logging.getLogger(__name__)

QUIET_SECONDS = 10.0
"""A cause is logged once, then at most this often with a count: a full volume fails thousands of dumps."""


class Complaints:
    """One log line for each cause, repeated at most every QUIET_SECONDS with the number left out.

    directory: where the last one is kept as COMPLAINT_NAME, or None.
    """

    def __init__(self, directory: Path | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._directory, self._clock = directory, clock
        self._lock = threading.Lock()
        self._last: dict[object, float] = {}
        self._silent: dict[object, int] = {}

    def about(self, rid: str, error: Exception) -> None:
        """Says that there will be no dump of `rid`, and why."""
        cause = (type(error), getattr(error, "errno", None))
        with self._lock:
            now = self._clock()
            if now - self._last.get(cause, float("-inf")) < QUIET_SECONDS:
                self._silent[cause] = self._silent.get(cause, 0) + 1
                return
            self._last[cause] = now
            silent = self._silent.pop(cause, 0)
        text = str(error) if isinstance(error, HsqueueError) else f"{type(error).__name__}: {error}"
        more = f" ({silent} more like this)" if silent else ""
        log.error("no dump of %.80s: %s%s", rid, text, more)
        if self._directory is not None:
            keep(self._directory, Complaint(rid[:80], time.time(), text))


def keep(directory: Path, complaint: Complaint) -> None:
    """Best effort: what fails here is in the log already."""
    temporary = directory / f".{COMPLAINT_NAME}-{os.getpid()}-{threading.get_ident()}"
    try:
        temporary.write_text(complaint.to_json(), encoding="utf-8")
        temporary.replace(directory / COMPLAINT_NAME)
    except OSError as error:
        log.debug("the complaint was not kept: %s", error)
        temporary.unlink(missing_ok=True)
