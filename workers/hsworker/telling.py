"""What a shard's task tells Flower: its progress in words, about once a second, and why samples of it failed."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from hsqueue.contracts.sample import Ending, GivenUp

log = logging.getLogger(__name__)

REPORT_SECONDS = 1.0
LONGEST_REASON = 300
"""Characters of a sample's error in a task's; the ledger has all of it."""


class Teller:
    """send: sends one of Celery's events, with standard fields only, since Flower keeps no others."""

    def __init__(self, send: Callable[..., Any], engine: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.send, self.engine, self.clock = send, engine, clock
        self._began: tuple[float, int] | None = None
        self._last = float("-inf")

    def waits(self) -> None:
        """The shard has no lease yet: another one of this worker still has something to send."""
        self._tell("waits for its turn")

    def report(self, ended: int, total: int, tokens: int) -> None:
        """ended, total: samples of the shard. tokens: of those that are done; what is there at the first call was
        done before, so it counts for no rate.
        """
        now = self.clock()
        if self._began is None:
            self._began = now, tokens
        if now - self._last < REPORT_SECONDS and ended < total:
            return
        self._last = now
        began, before = self._began
        rate = (tokens - before) / (now - began) if now > began else 0.0
        self._tell(progress_text(ended, total, rate))

    def _tell(self, text: str) -> None:
        try:
            # Celery sends no arguments of its own for these tasks, so that field can say which engine it is.
            self.send("task-progress", result=text, args=self.engine)
        except Exception:
            log.debug("progress could not be sent", exc_info=True)


def progress_text(ended: int, total: int, tokens_per_second: float) -> str:
    return f"{ended}/{total} samples" + (f", {tokens_per_second:,.0f} tokens/s" if tokens_per_second else "")


def reasons(given_up: Iterable[GivenUp]) -> str:
    """Why samples failed: how many of each error, and the first one's text. Empty where none has."""
    failed = sorted((given for given in given_up if given.ending is Ending.FAILED), key=lambda given: given.index)
    if not failed:
        return ""
    kinds = Counter(given.error for given in failed).most_common()
    counted = ", ".join(f"{count} {error}" for error, count in kinds)
    return f"{counted}; sample {failed[0].index}: {failed[0].detail[:LONGEST_REASON]}"
