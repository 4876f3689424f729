"""Everything that a report says, gathered from the volume and, where one is at hand, from Redis."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from hsqueue.contracts.errors import RunDamaged
from hsqueue.contracts.fingerprint import RunInfo
from hsqueue.contracts.sample import Ending
from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.rebuild import latest_epoch
from hsqueue.monitoring.snapshot import Snapshot, from_ledger
from hsqueue.planning.plan import load_plan
from hsqueue.report.bins import Rates, rates
from hsqueue.report.tally import Tally, add_published, tally
from hsqueue.store.layout import RunLayout


@dataclass(frozen=True, slots=True)
class Totals:
    """As ``status`` has them: total = done + skipped + failed + pending. tokens, bytes: of the done samples' rows."""

    total: int
    done: int
    skipped: int
    failed: int
    pending: int
    tokens: int
    bytes: int
    shards: int
    shards_ended: int


@dataclass(frozen=True, slots=True)
class Report:
    """tally: of the manifests. rejected: lines of the prompts that were not planned, by reason. rebuilds: times that
    the ledger was made anew from the volume. present: how the run stands in Redis, None where none is at hand.
    made: Unix seconds.
    """

    info: RunInfo
    totals: Totals
    tally: Tally
    rates: Rates | None
    rejected: Mapping[str, int]
    rebuilds: int
    present: Snapshot | None
    made: float


def gather(layout: RunLayout, info: RunInfo, ledger: Ledger | None) -> Report:
    """ledger: None where no Redis is at hand. Raises VolumeUnusable, RedisUnreachable, LedgerDamaged."""
    counted = tally(layout, info)
    present = from_ledger(ledger, info) if ledger is not None else None
    if present is None:
        add_published(counted, layout, info)
    return Report(
        info=info,
        totals=_totals(counted, info) if present is None else _totals_of(present),
        tally=counted,
        rates=rates(counted.spans),
        rejected=_rejected(layout),
        rebuilds=max(0, latest_epoch(layout) - 1),
        present=present,
        made=time.time(),
    )


def _totals(counted: Tally, info: RunInfo) -> Totals:
    done, skipped, failed = counted.done, counted.count(Ending.SKIPPED), counted.count(Ending.FAILED)
    return Totals(
        info.samples, done, skipped, failed, info.samples - done - skipped - failed, counted.tokens,
        counted.tokens * info.fingerprint.target.bytes_per_token, info.shards, counted.ended,
    )  # fmt: skip


def _totals_of(s: Snapshot) -> Totals:
    return Totals(s.total, s.done, s.skipped, s.failed, s.pending, s.tokens, s.bytes, s.shards, s.shards_ended)


def _rejected(layout: RunLayout) -> Mapping[str, int]:
    """A plan's account that is damaged is no reason to show nothing else."""
    try:
        found = load_plan(layout.root).rejected
        return {str(reason): int(lines) for reason, lines in found.items()}
    except (RunDamaged, ValueError, TypeError, AttributeError):
        return {}
