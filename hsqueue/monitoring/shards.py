"""How each shard of a run stands, as one letter: quick enough for a page of 100,000 cells."""

from __future__ import annotations

from collections.abc import Iterable

from hsqueue.ledger.ledger import Ledger

WAITING, QUEUED, WORKED_AT, ENDED, TROUBLED = ".", "q", "w", "e", "f"
"""Neither sent nor leased at the moment; sent; leased; ended; ended, with samples that were skipped or failed."""


def shard_states(ledger: Ledger, shards: int) -> str:
    """One letter for each of the run's `shards`. Raises RedisUnreachable, LedgerDamaged."""
    standing = ledger.standing(shards)
    # Mostly every open shard is queued or leased; then nobody has to list them.
    everything = standing.queued + standing.leased >= standing.open
    queued = range(shards) if everything else ledger.queued_shards(shards)
    return draw(shards, ledger.ended_bitmap(shards), queued, ledger.live_holders(), ledger.troubled(shards))


def draw(
    shards: int, ended: bytes, queued: range | Iterable[int], leased: Iterable[int], troubled: Iterable[int]
) -> str:
    """ended: a bit for each shard, the highest of a byte first; missing bytes count as zero. queued: a range stands for
    all that have not ended. troubled: for each shard, how many samples were given up.
    """
    digits = format(int.from_bytes(ended, "big"), f"0{8 * len(ended)}b") if ended else ""
    everything = isinstance(queued, range)
    letters = digits.translate({48: QUEUED if everything else WAITING, 49: ENDED})
    states = list(letters[:shards].ljust(shards, QUEUED if everything else WAITING))
    if not everything:
        _mark(states, queued, QUEUED)
    _mark(states, leased, WORKED_AT)
    for shard, count in enumerate(troubled):
        if count and states[shard] == ENDED:
            states[shard] = TROUBLED
    return "".join(states)


def _mark(states: list[str], chosen: Iterable[int], state: str) -> None:
    for shard in chosen:
        if 0 <= shard < len(states) and states[shard] != ENDED:
            states[shard] = state
