"""Who may send next to one engine, whose shards' requests share it: pure rules over what each process has in flight."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple


class Waits(IntEnum):
    """Whose doing may let a shard go on: its own requests' ends alone, what others free, or an elder's turn's end."""

    ITSELF = 0
    OTHERS = 1
    ELDER = 2


class Slot(NamedTuple):
    """One process at work on one shard. since: when it began, seconds of the system's monotonic clock.
    requests, tokens: sent and unanswered. bytes: of dumps awaited or unread. wants: it has something to send now.
    alone: it wants, or has, the engine for one request of its own. fence: of its lease, 0 before it has one.
    waits: one of Waits, since it was last refused.

    A tuple, in the order in which it lies in the shared file.
    """

    pid: int
    since: float = 0.0
    requests: int = 0
    bytes: int = 0
    wants: bool = False
    alone: bool = False
    fence: int = 0
    tokens: int = 0
    waits: int = Waits.ITSELF


@dataclass(frozen=True, slots=True)
class Limits:
    """requests, tokens: in flight on the engine. bytes: of dumps awaited or unread.

    Tokens keep an engine's batches full, whatever the prompts' lengths; requests bound the threads.
    """

    requests: int
    tokens: int
    bytes: int


def is_turn(mine: Slot, others: Iterable[Slot]) -> bool:
    """Whether no elder shard has something to send."""
    return not any(other.wants and (other.since, other.pid) < (mine.since, mine.pid) for other in others)


def may_send(mine: Slot, others: Iterable[Slot], tokens: int, size: int, limits: Limits) -> bool:
    """Whether one more request of `tokens` tokens with a dump of `size` bytes may be sent.

    One larger than a whole limit is sent when nothing else is in flight, so that it can be done at all.
    """
    others = list(others)
    requests = mine.requests + sum(o.requests for o in others)
    held = mine.bytes + sum(o.bytes for o in others)
    if mine.alone:
        first = not any(o.alone and (o.since, o.pid) < (mine.since, mine.pid) for o in others)
        return first and requests == 0 and (held == 0 or held + size <= limits.bytes)
    if any(o.alone for o in others) or not is_turn(mine, others):
        return False
    if requests == 0 and held == 0:
        return True
    flying = mine.tokens + sum(o.tokens for o in others)
    return requests < limits.requests and flying + tokens <= limits.tokens and held + size <= limits.bytes


def waits_for(mine: Slot, others: Iterable[Slot]) -> Waits:
    """Who may let a refused shard send. Of its own requests' ends it hears anyway."""
    others = list(others)
    # Whoever is to be alone waits for no turn, since the others send nothing meanwhile.
    if not mine.alone and not is_turn(mine, others):
        return Waits.ELDER
    return Waits.OTHERS if any(o.requests or o.tokens or o.bytes or o.alone for o in others) else Waits.ITSELF


def hears(waiting: Slot, others: Iterable[Slot]) -> bool:
    """Whether a shard has to look again, now that one of `others` has freed something."""
    return waiting.waits == Waits.OTHERS or (waiting.waits == Waits.ELDER and is_turn(waiting, others))
