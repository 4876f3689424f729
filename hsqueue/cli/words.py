"""How a run's state is put into words, for the screen and for lines alike: pure functions."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hsqueue.cli.console import plural, printable, readable_bytes, readable_seconds
from hsqueue.contracts.fingerprint import RunInfo
from hsqueue.contracts.sample import Ending
from hsqueue.ledger.ledger import Ledger
from hsqueue.monitoring.failures import Failure, newest_failures
from hsqueue.monitoring.snapshot import Snapshot, from_ledger
from hsqueue.monitoring.workers import GONE, PAUSED, STOPPING, WorkerState

FAILURES = 5
"""Newest failures that are shown."""


@dataclass(frozen=True, slots=True)
class View:
    """What is shown of a run at one moment. failures: the newest."""

    snapshot: Snapshot
    failures: tuple[Failure, ...] = ()

    def without(self, kind: str) -> View:
        """The same without troubles of `kind`."""
        found = tuple(trouble for trouble in self.snapshot.troubles if trouble.kind != kind)
        return replace(self, snapshot=replace(self.snapshot, troubles=found))


def look(ledger: Ledger, info: RunInfo) -> View:
    """Raises RedisUnreachable, LedgerDamaged."""
    snapshot = from_ledger(ledger, info)
    some = snapshot.failed + snapshot.skipped
    found = newest_failures(ledger, info.fingerprint.shard_size, FAILURES) if some else []
    return View(snapshot, tuple(found))


def share(snapshot: Snapshot) -> float:
    """Of the samples, how many have ended, 0 to 1."""
    return (snapshot.total - snapshot.pending) / snapshot.total if snapshot.total else 1.0


def headline(snapshot: Snapshot) -> str:
    """How far, and when done."""
    s = snapshot
    if s.ended:
        if s.complete:
            return "complete"
        return f"ended, {plural(s.failed, 'sample')} failed"
    # Rounded down, so that only what is whole is called so.
    percent = math.floor(1000 * share(s)) / 10
    words = f"{percent:.1f}% of {plural(s.total, 'sample')}"
    if s.pace.began is None and s.pending == s.total:
        return f"{words}, not begun"
    left = s.pace.seconds_left
    return words if left is None else f"{words}, about {readable_seconds(left)} left"


def counts(snapshot: Snapshot) -> str:
    s = snapshot
    return f"{s.done:,} done, {s.skipped:,} skipped, {s.failed:,} failed, {s.pending:,} pending of {s.total:,}"


def size(snapshot: Snapshot) -> str:
    s = snapshot
    return f"{s.shards_ended:,} of {plural(s.shards, 'shard')}, {plural(s.tokens, 'token')}, {readable_bytes(s.bytes)}"


def speed(snapshot: Snapshot, now: datetime) -> str:
    """How fast, and when done by the clock; empty before anything was done. now: local time."""
    pace = snapshot.pace
    if pace.began is None or not pace.overall + pace.recent:
        return ""
    if snapshot.ended:
        return f"{pace.overall:,.0f} tokens/s from beginning to end"
    words = f"{pace.recent:,.0f} tokens/s over the last five minutes, {pace.overall:,.0f} since the start"
    return words if pace.seconds_left is None else f"{words}; done at about {clock(now, pace.seconds_left)}"


def clock(now: datetime, seconds: float) -> str:
    """The time in `seconds`, with the day where it is not today."""
    then = now + timedelta(seconds=seconds)
    if then.date() == now.date():
        return f"{then:%H:%M}"
    return f"{then:%a %H:%M}" if seconds < 6 * 86400 else f"{then:%d %b %H:%M}"


def doing(worker: WorkerState) -> str:
    if worker.state == GONE:
        return f"gone for {readable_seconds(worker.seen)}"
    if worker.state == PAUSED:
        return f"waits for the {worker.waits_for or 'engine'}"
    if worker.state == STOPPING:
        return "ending"
    if not worker.shards:
        return "at no shard"
    return f"at shard {', '.join(map(str, worker.shards))}"


def seen(worker: WorkerState) -> str:
    return "now" if worker.seen < 5 else f"{readable_seconds(worker.seen)} ago"


def dump_fill(worker: WorkerState) -> str:
    """How full the worker's share of the dump directory is."""
    return f"{100 * worker.dump_bytes / worker.dump_limit:.0f}%" if worker.dump_limit else ""


def failure(found: Failure) -> str:
    given = found.sample
    detail = f": {printable(given.detail)}" if given.detail and given.detail != given.error else ""
    tries = f" after {plural(given.attempts, 'request')}" if given.attempts else ""
    return f"sample {given.index} {given.ending}{tries}: {printable(given.error)}{detail}"


def hint(snapshot: Snapshot) -> str:
    """What to do about samples that came to nothing."""
    again = "--failed" if snapshot.failed else "--skipped"
    return f"all of them: hsqueue ledger show RUN; once mended: hsqueue retry RUN {again}"


def first_of(failures: tuple[Failure, ...], number: int) -> tuple[Failure, ...]:
    """Failed ones before skipped ones."""
    return tuple(sorted(failures, key=lambda found: found.sample.ending is not Ending.FAILED)[:number])
