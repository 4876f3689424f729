"""From the volume to the ledger: after Redis came back empty, and before every start against drift."""

from __future__ import annotations

import time
from dataclasses import dataclass

import redis

from hsqueue.contracts.errors import RedisUnreachable
from hsqueue.contracts.fingerprint import RunInfo
from hsqueue.contracts.sample import GivenUp, Published
from hsqueue.ledger.accounts import accounted
from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.lock import try_lock
from hsqueue.ledger.records import LedgerInfo
from hsqueue.planning.shards import read_shard
from hsqueue.store.files import fsync_directory, make_directory, require_inside, require_run, volume_error
from hsqueue.store.layout import RunLayout
from hsqueue.store.survey import ShardState, survey

REBUILD_WAIT_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class Reconciled:
    """rebuilt: the ledger was made anew, since Redis had none or an older one. missing: samples recorded as done
    without a whole file, pending now.
    """

    ledger: Ledger
    rebuilt: bool
    missing: int


def new_epoch(layout: RunLayout) -> int:
    """The next life of this run's ledger, from 1; kept on the volume, since Redis may forget.

    Raises VolumeUnusable.
    """
    make_directory(layout.epochs)
    epoch = latest_epoch(layout) + 1
    while True:
        try:
            with (layout.epochs / f"{epoch:06d}").open("xb"):
                fsync_directory(layout.epochs)
                return epoch
        except FileExistsError:
            epoch += 1
        except OSError as error:
            raise volume_error(error, layout.epochs / "epoch") from error


def latest_epoch(layout: RunLayout) -> int:
    """The life of this run's ledger that began last, by the volume; 0 before the first. Raises VolumeUnusable."""
    try:
        return max((int(path.name) for path in layout.epochs.iterdir() if path.name.isdigit()), default=0)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise volume_error(error, layout.epochs) from error


def rebuild(client: redis.Redis, url: str, layout: RunLayout, info: RunInfo) -> Ledger:
    """Replaces the ledger by what the volume holds, under a new epoch, so that every older lease is void.

    Raises VolumeUnusable where the run is not there: an empty mount point says nothing of what is done.
    """
    require_run(layout.run_json)
    ledger = Ledger(client, url, info.run)
    states = list(survey(layout, info))
    remove_unsound(layout, states)
    done: list[Published] = [d for state in states for d in state.done]
    given_up: list[GivenUp] = [g for state in states for g in state.given_up if state.ended]
    ledger.create(
        LedgerInfo.of(info, str(layout.root.resolve()), new_epoch(layout)),
        done, given_up, (state.shard for state in states if state.ended),
    )  # fmt: skip
    return ledger


def reconcile(client: redis.Redis, url: str, layout: RunLayout, info: RunInfo) -> Reconciled:
    """The run's ledger, agreeing with the volume. Built from it where this Redis does not know the run, or knows an
    older state of it: its fencing tokens would be granted a second time.

    Files that are there and not recorded are left to the worker that takes their shard: it adopts them.
    """
    require_run(layout.run_json)
    ledger = Ledger(client, url, info.run)
    known = ledger.info()
    if known is None or known.epoch < latest_epoch(layout):
        return Reconciled(_rebuild_alone(ledger, layout, info, known), rebuilt=True, missing=0)
    if known.dir != str(layout.root.resolve()):
        ledger.move(str(layout.root.resolve()))
    missing = newest = 0
    held = ledger.holders()
    ended = ledger.ended_shards(info.shards)
    for state in survey(layout, info, accounted_for(ledger, info, ended)):
        if state.fence > newest:
            # Read after the manifest: a living worker may have been granted its lease since the last look.
            newest = ledger.newest_fence()
        if state.fence > newest:
            return Reconciled(_rebuild_alone(ledger, layout, info, known), rebuilt=True, missing=0)
        if state.shard in held:
            continue
        there = {d.index for d in state.done}
        recorded = ledger.done_in(info.shard_range(state.shard))
        lost = recorded - there
        if lost or state.stale or state.damaged:
            remove_unsound(layout, [state])
        if state.shard in ended and state.ended and there - recorded:
            # Redis lost bits that it had; whoever leases the shard adopts the files and asks for nothing.
            ledger.reopen(state.shard)
        if state.shard in ended and not state.ended:
            # Ended there and not on the volume is not true any more: files went, or hsqueue retry took the manifest.
            backed = {g.index for g in state.given_up}
            given_up = ledger.given_up(info.shard_range(state.shard))
            ledger.forget(state.shard, {index: 0 for index in given_up if index not in backed})
            ledger.reopen(state.shard)
        if lost:
            planned = {
                s.index: s.tokens for s in read_shard(layout.plan_shard(state.shard), info.shard_range(state.shard))
            }
            missing += ledger.forget(state.shard, {index: planned[index] for index in lost})
    return Reconciled(ledger, rebuilt=False, missing=missing)


def accounted_for(ledger: Ledger, info: RunInfo, ended: set[int]) -> set[int]:
    """Those of the `ended` shards of which the ledger knows every sample's ending."""
    done, given_up = ledger.done_bitmap(info.samples), ledger.given_up()
    return accounted(done, given_up, info.samples, info.fingerprint.shard_size, ended)


def remove_unsound(layout: RunLayout, states: list[ShardState]) -> None:
    """Removes manifests that do not hold and files that are not whole, so that good ones can take their names."""
    try:
        for state in states:
            if state.stale or state.damaged:
                require_inside(layout.root, layout.manifest(state.shard).parent, layout.shard_directory(state.shard))
            if state.stale:
                layout.manifest(state.shard).unlink(missing_ok=True)
            for index in state.damaged:
                layout.sample(state.shard, index).unlink(missing_ok=True)
    except OSError as error:
        raise volume_error(error, layout.root / "samples") from error


def _rebuild_alone(ledger: Ledger, layout: RunLayout, info: RunInfo, stale: LedgerInfo | None) -> Ledger:
    """Rebuilds unless another process is at it; then waits for that one. stale: what is to be replaced."""

    def is_new() -> bool:
        found = ledger.info()
        return found is not None and found != stale

    deadline = time.monotonic() + REBUILD_WAIT_SECONDS
    while True:
        with try_lock(ledger.client, ledger.url, ledger.keys.rebuilding) as mine:
            if mine:
                return ledger if is_new() else rebuild(ledger.client, ledger.url, layout, info)
        if is_new():
            return ledger
        if time.monotonic() > deadline:
            raise RedisUnreachable(
                f"another process has been rebuilding the ledger of run {info.run} for too long",
                do=f"End it, then run hsqueue ledger rebuild {layout.root}.",
            )
        time.sleep(0.2)
