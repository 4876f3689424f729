"""The progress of a run while it goes on: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections import deque

from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn

from hsqueue.cli.console import readable_seconds, say, stderr, stdout
from hsqueue.contracts.fingerprint import RunInfo
from hsqueue.monitoring.snapshot import Snapshot

LINE_SECONDS = 10.0
WINDOW_SECONDS = 30.0


class RunProgress:
    """Shows snapshots of one run, as a context manager."""

    def __init__(self, info: RunInfo) -> None:
        self.info = info
        self._window: deque[tuple[float, int]] = deque()
        self._next_line = 0.0
        self._bar = Progress(
            TextColumn("extracting"), BarColumn(), TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
            TextColumn("{task.fields[text]}"), console=stderr, disable=not stderr.is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task("", total=info.samples, text="")

    def __enter__(self) -> RunProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def tell(self, event: str) -> None:
        if self._bar.disable:
            say(event)
        else:
            self._bar.console.print(escape(event))

    def show(self, snapshot: Snapshot) -> None:
        now = time.monotonic()
        self._window.append((now, snapshot.tokens))
        while now - self._window[0][0] > WINDOW_SECONDS:
            self._window.popleft()
        ended = snapshot.total - snapshot.pending
        text = self._text(snapshot)
        self._bar.update(self._task, completed=ended, text=text)
        if self._bar.disable and now >= self._next_line:
            self._next_line = now + LINE_SECONDS
            stdout.print(f"{ended:,} of {snapshot.total:,} samples ended, {text}")

    def _text(self, snapshot: Snapshot) -> str:
        (begin, first), (end, last) = self._window[0], self._window[-1]
        rate = (last - first) / (end - begin) if end > begin else 0.0
        parts = [f"{rate:,.0f} tokens/s"]
        left = self.info.tokens - snapshot.tokens
        if rate > 0 and left > 0:
            parts.append(f"about {readable_seconds(left / rate)} left")
        parts += [f"{n} {name}" for n, name in ((snapshot.failed, "failed"), (snapshot.skipped, "skipped")) if n]
        paused = [f"{w.name} paused: {w.paused}" for w in snapshot.workers if w.paused]
        return ", ".join(parts + paused[:1])
