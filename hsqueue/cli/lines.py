"""A run's state as plain lines, for pipes and logs."""

from __future__ import annotations

import time
from datetime import datetime

from hsqueue.cli.console import printable, readable_bytes, say
from hsqueue.cli.words import View, counts, doing, dump_fill, failure, headline, hint, seen, size, speed
from hsqueue.monitoring.snapshot import Snapshot
from hsqueue.monitoring.workers import PAUSED, WorkerState

LINE_SECONDS = 10.0


class Lines:
    """Where there is no terminal: a line now and then, and at once where a trouble begins or ends."""

    def __init__(self) -> None:
        self._next = 0.0
        self._troubles: object = None

    def show(self, view: View) -> None:
        now = time.monotonic()
        troubles = [(trouble.kind, trouble.worker) for trouble in view.snapshot.troubles]
        if now >= self._next or troubles != self._troubles or view.snapshot.ended:
            self._next, self._troubles = now + LINE_SECONDS, troubles
            say(progress_line(view.snapshot))


def status_lines(view: View, now: datetime) -> list[str]:
    """The whole state. now: local time."""
    s = view.snapshot
    lines = [f"run {s.run}: {headline(s)}"]
    lines += [f"  ! {printable(trouble.text)}" for trouble in s.troubles]
    lines += [f"  {counts(s)}", f"  {size(s)}"]
    if speed(s, now):
        lines.append(f"  {speed(s, now)}")
    if s.source == "volume" and s.pending:
        lines.append("  (from the files on the volume; no Redis at hand knows the run)")
    lines += [f"  {worker_line(worker)}" for worker in s.workers]
    if view.failures:
        lines += [f"  {failure(found)}" for found in view.failures]
        lines.append(f"  {hint(s)}")
    return lines


def worker_line(worker: WorkerState) -> str:
    on = f" ({printable(worker.gpu)})" if worker.gpu else ""
    parts = [f"{printable(worker.name)} on {printable(worker.engine)}{on}: {doing(worker)}"]
    if worker.state == PAUSED:
        parts.append(printable(worker.paused))
    if worker.lives:
        parts.append(f"{worker.tokens_per_second:,.0f} tokens/s")
        parts.append(f"{worker.requests} in flight")
        parts.append(f"dumps {dump_fill(worker)} full ({readable_bytes(worker.dump_bytes)})")
        parts.append(f"heard of {seen(worker)}")
    return ", ".join(parts)


def progress_line(snapshot: Snapshot) -> str:
    """One line, for a log that grows by it now and then."""
    s = snapshot
    parts = [headline(s), f"{s.done:,} done"]
    parts += [f"{number:,} {name}" for number, name in ((s.skipped, "skipped"), (s.failed, "failed")) if number]
    parts.append(f"{s.pace.recent:,.0f} tokens/s")
    return ", ".join(parts) + "".join(f"; ! {printable(trouble.text)}" for trouble in s.troubles)
