"""Takes endings back: removes the manifests that hold them, and tells the ledger."""

from __future__ import annotations

from collections.abc import Collection

from hsqueue.contracts.fingerprint import RunInfo
from hsqueue.contracts.sample import Ending, GivenUp
from hsqueue.ledger.ledger import Ledger
from hsqueue.planning.shards import read_shard
from hsqueue.store.files import volume_error
from hsqueue.store.layout import RunLayout
from hsqueue.store.survey import survey


def retry(layout: RunLayout, info: RunInfo, ledger: Ledger | None, endings: Collection[Ending]) -> int:
    """Makes every sample that ended in one of `endings` pending again. Returns how many.

    ledger: None where none runs. Raises VolumeUnusable.
    """
    given_up: dict[int, GivenUp] = {g.index: g for state in survey(layout, info) for g in state.given_up}
    if ledger is not None:
        given_up |= ledger.given_up()
    by_shard: dict[int, list[int]] = {}
    for index, given in given_up.items():
        if given.ending in endings:
            by_shard.setdefault(index // info.fingerprint.shard_size, []).append(index)
    for shard, indices in sorted(by_shard.items()):
        try:
            layout.manifest(shard).unlink(missing_ok=True)
        except OSError as error:
            raise volume_error(error, layout.manifest(shard)) from error
        if ledger is not None:
            planned = {s.index: s.tokens for s in read_shard(layout.plan_shard(shard), info.shard_range(shard))}
            ledger.forget(shard, {index: planned[index] for index in indices})
            ledger.reopen(shard)
    return sum(map(len, by_shard.values()))
