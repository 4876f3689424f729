"""What earlier leases of a shard left: published samples to be kept, and half-done work to be cleared away."""

from __future__ import annotations

from dataclasses import dataclass

from hsqueue.contracts.fingerprint import RunInfo
from hsqueue.contracts.sample import GivenUp, Published
from hsqueue.ledger.ledger import Ledger
from hsqueue.planning.shards import read_shard
from hsqueue.store.files import make_directory, require_inside, temporaries_of, volume_error
from hsqueue.store.layout import TEMPORARY_SUFFIX, RunLayout
from hsqueue.store.survey import ShardState, look_afresh, survey_shard


@dataclass(frozen=True, slots=True)
class Adopted:
    """recorded: published samples that the ledger knows. unrecorded: those that it does not. given_up: by index;
    none of them is published. ended: a manifest vouches for all of it, of which the ledger may know nothing.
    """

    recorded: tuple[Published, ...]
    unrecorded: tuple[Published, ...]
    given_up: dict[int, GivenUp]
    ended: bool


def adopt(layout: RunLayout, info: RunInfo, ledger: Ledger, shard: int) -> Adopted:
    """Under the shard's lease. The ledger forgets samples whose files are gone; a manifest that lists them goes too.

    Raises VolumeUnusable, RunDamaged, RedisUnreachable, LedgerDamaged.
    """
    indices, directory = info.shard_range(shard), layout.shard_directory(shard)
    require_inside(layout.root, directory, layout.manifest(shard))
    make_directory(directory)
    look_afresh(layout, [shard])
    state = survey_shard(layout, info, shard)
    known = ledger.done_in(indices)
    lost = known - {sample.index for sample in state.done}
    _clear(layout, state, is_listed_wrongly=bool(lost) or state.stale)
    if lost:
        planned = {sample.index: sample.tokens for sample in read_shard(layout.plan_shard(shard), indices)}
        ledger.forget(shard, {index: planned[index] for index in lost})
    given_up = ledger.given_up(indices)
    if state.ended:
        given_up |= {given.index: given for given in state.given_up}
    published = {sample.index for sample in state.done}
    return Adopted(
        recorded=tuple(sample for sample in state.done if sample.index in known),
        unrecorded=tuple(sample for sample in state.done if sample.index not in known),
        given_up={index: given for index, given in given_up.items() if index not in published},
        ended=state.ended,
    )


def _clear(layout: RunLayout, state: ShardState, *, is_listed_wrongly: bool) -> None:
    """Damaged files, what was being written, and a manifest that is not right any more."""
    directory, manifest = layout.shard_directory(state.shard), layout.manifest(state.shard)
    try:
        for index in state.damaged:
            layout.sample(state.shard, index).unlink(missing_ok=True)
        for path in (*directory.glob(f".*{TEMPORARY_SUFFIX}"), *temporaries_of(manifest)):
            path.unlink(missing_ok=True)
        if is_listed_wrongly:
            manifest.unlink(missing_ok=True)
    except OSError as error:
        raise volume_error(error, directory / "x") from error
