"""What a new ledger holds, from what the volume holds: pure."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass

from hsqueue.contracts.sample import Ending, GivenUp, Published
from hsqueue.ledger.bits import bitmap
from hsqueue.ledger.counters import pack
from hsqueue.ledger.records import LedgerInfo, given_up_json

NEWEST = 100
"""Of the failed and of the skipped samples, how many newest are listed; commit.lua has the same number."""


@dataclass(frozen=True, slots=True)
class Initial:
    """Values of the keys of the same names; see ``hsqueue.ledger.keys``. newest_failed, newest_skipped: indices."""

    done: bytes
    ended: bytes
    counts: dict[str, int]
    given_up: dict[str, str]
    troubled: bytes
    newest_failed: list[int]
    newest_skipped: list[int]


def initial(info: LedgerInfo, done: Iterable[Published], given_up: Iterable[GivenUp], ended: Iterable[int]) -> Initial:
    """done, given_up: samples that have ended, each once. ended: shards."""
    given_up = list(given_up)
    bits = bytearray((info.samples + 7) // 8)
    samples = tokens = 0
    for sample in done:
        bits[sample.index // 8] |= 0x80 >> sample.index % 8
        samples += 1
        tokens += sample.tokens
    troubled = array("I", bytes(4 * info.shards))
    for given in given_up:
        troubled[given.index // info.shard_size] += 1
    failed = sorted(given.index for given in given_up if given.ending is Ending.FAILED)
    skipped = sorted(given.index for given in given_up if given.ending is not Ending.FAILED)
    return Initial(
        done=bytes(bits),
        ended=bitmap(ended, info.shards),
        counts={"done": samples, "skipped": len(skipped), "failed": len(failed), "tokens": tokens},
        given_up={str(given.index): given_up_json(given) for given in given_up},
        troubled=pack(troubled) if given_up else b"",
        newest_failed=failed[-NEWEST:],
        newest_skipped=skipped[-NEWEST:],
    )
