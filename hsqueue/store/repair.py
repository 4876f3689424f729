"""Takes wrong files away and makes their samples pending again."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from hsqueue.contracts.fingerprint import RunInfo
from hsqueue.ledger.ledger import Ledger
from hsqueue.planning.shards import read_shard
from hsqueue.store.files import require_inside, volume_error
from hsqueue.store.layout import RunLayout
from hsqueue.store.survey import survey_shard
from hsqueue.store.verify import Finding


def repair(layout: RunLayout, info: RunInfo, ledger: Ledger | None, findings: Sequence[Finding]) -> int:
    """Moves every wrong file to ``RUN/quarantine``, removes the manifests of its shards, and tells the ledger.

    Returns the samples that are pending again. ledger: None where none runs; it is rebuilt from the volume at
    the next start. Raises VolumeUnusable.
    """
    again = 0
    for finding in findings:
        if finding.repair != "manifest" and os.path.lexists(finding.path):
            _quarantine(layout, finding)
    for shard in sorted({finding.shard for finding in findings if finding.shard is not None}):
        mine = [finding for finding in findings if finding.shard == shard]
        try:
            layout.manifest(shard).unlink(missing_ok=True)
        except OSError as error:
            raise volume_error(error, layout.manifest(shard)) from error
        wrong = {finding.index for finding in mine if finding.repair == "sample" and finding.index is not None}
        again += len(wrong)
        if ledger is not None:
            reopen(layout, info, ledger, shard)
    return again


def _quarantine(layout: RunLayout, finding: Finding) -> None:
    """Moves what stands at the finding's path, a link itself and not what it leads to."""
    require_inside(layout.root, layout.quarantine, finding.path.parent)
    whose = "stray" if finding.shard is None else f"{finding.shard:06d}"
    try:
        layout.quarantine.mkdir(exist_ok=True)
        finding.path.replace(layout.quarantine / f"{whose}-{finding.path.name}.{time.time_ns()}")
    except OSError as error:
        raise volume_error(error, layout.quarantine / "x") from error


def reopen(layout: RunLayout, info: RunInfo, ledger: Ledger, shard: int) -> int:
    """Makes pending what the ledger records of a shard and the volume does not hold. Returns how many samples."""
    there = {d.index for d in survey_shard(layout, info, shard).done}
    planned = {s.index: s.tokens for s in read_shard(layout.plan_shard(shard), info.shard_range(shard))}
    gone = ledger.done_in(info.shard_range(shard)) - there
    forgotten = ledger.forget(shard, {index: planned[index] for index in gone})
    ledger.reopen(shard)
    return forgotten
