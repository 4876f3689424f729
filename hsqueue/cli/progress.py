"""The progress of a run while it goes on: the screen on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time

from hsqueue.cli.console import say, stderr
from hsqueue.cli.lines import Lines
from hsqueue.cli.live import LiveScreen
from hsqueue.cli.words import View

STARTING = 60.0
"""Seconds within which engines and workers may take to come up, before their absence is a trouble."""


class RunProgress:
    """Shows views of one run, as a context manager."""

    def __init__(self) -> None:
        self._screen = LiveScreen(stderr, whole=False) if stderr.is_terminal else None
        self._lines = Lines()
        self._began = time.monotonic()

    def __enter__(self) -> RunProgress:
        if self._screen:
            self._screen.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._screen:
            self._screen.__exit__()

    def tell(self, event: str) -> None:
        (self._screen.tell if self._screen else say)(event)

    def show(self, view: View) -> None:
        if not view.snapshot.workers and time.monotonic() - self._began < STARTING:
            view = view.without("no_worker")
        (self._screen or self._lines).show(view)
