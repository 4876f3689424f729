"""What one engine may have in flight, shared by the processes of its worker.

Two shards overlap, so that the engine does not run dry between them: the elder takes what it wants, the younger
what is left. The state lies in a file that every process maps; the kernel releases a dead process's lock, and
its slot counts for nothing.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

SLOTS = 16
_SLOT = struct.Struct("<qdqqqqqq")


@dataclass(frozen=True, slots=True)
class Slot:
    """One process at work on one shard. since: when it began, seconds of the system's monotonic clock.
    requests, tokens: sent and unanswered. bytes: of dumps awaited or unread. wants: it has something to send now.
    alone: it wants, or has, the engine for one request of its own. fence: of its lease, 0 before it has one.
    """

    pid: int
    since: float
    requests: int = 0
    bytes: int = 0
    wants: bool = False
    alone: bool = False
    fence: int = 0
    tokens: int = 0


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


class Waits(Enum):
    """Whose doing may let a refused shard send. Of its own requests' ends it hears anyway."""

    ITSELF = "itself"
    OTHERS = "others"
    ELDER = "elder"


def waits_for(mine: Slot, others: Iterable[Slot]) -> Waits:
    """Whom to look at again after a refusal."""
    others = list(others)
    if not is_turn(mine, others):
        return Waits.ELDER
    return Waits.OTHERS if any(o.requests or o.tokens or o.bytes or o.alone for o in others) else Waits.ITSELF


class Budget:
    """The shared state in `path`, made on first use. One object a process, for any of its threads."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self.limits = limits
        self._file = path.open("a+b")
        self._thread_lock = threading.Lock()
        with self._locked():
            if os.fstat(self._file.fileno()).st_size < _SLOT.size * SLOTS:
                self._file.truncate(_SLOT.size * SLOTS)
        self._map = mmap.mmap(self._file.fileno(), _SLOT.size * SLOTS)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._thread_lock:
            fcntl.lockf(self._file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN)

    def _read(self) -> dict[int, Slot]:
        found, own = {}, os.getpid()
        for place, (pid, since, requests, size, wants, alone, fence, tokens) in enumerate(_SLOT.iter_unpack(self._map)):
            if pid == own or is_alive(pid):
                found[place] = Slot(pid, since, requests, size, bool(wants), bool(alone), fence, tokens)
        return found

    def _write(self, place: int, slot: Slot) -> None:
        fields = (slot.pid, slot.since, slot.requests, slot.bytes, slot.wants, slot.alone, slot.fence, slot.tokens)
        _SLOT.pack_into(self._map, place * _SLOT.size, *fields)

    def slots(self) -> list[Slot]:
        """Of the living processes."""
        with self._locked():
            return list(self._read().values())

    def open(self) -> Share:
        """This process's share; one shard at a time. Raises RuntimeError where more processes share than can."""
        with self._locked():
            taken = self._read()
            place = next((p for p, s in taken.items() if s.pid == os.getpid()), None)
            if place is None:
                place = next((p for p in range(SLOTS) if p not in taken), None)
            if place is None:
                raise RuntimeError(f"more than {SLOTS} processes share one engine")
            self._write(place, Slot(os.getpid(), time.monotonic()))
        return Share(self, place)


class Share:
    """One shard's part of the budget. waits: whom the last refusal of ``take`` waits for."""

    def __init__(self, budget: Budget, place: int) -> None:
        self._budget, self._place = budget, place
        self._declared = (False, 0)
        self.waits = Waits.ITSELF

    @contextmanager
    def _slot(self) -> Iterator[tuple[Slot, list[Slot]]]:
        with self._budget._locked():
            slots = self._budget._read()
            mine = slots.pop(self._place)
            yield mine, list(slots.values())

    def _put(self, slot: Slot) -> None:
        self._budget._write(self._place, slot)

    def is_turn(self) -> bool:
        with self._slot() as (mine, others):
            return is_turn(mine, others)

    def declare(self, *, wants: bool, fence: int) -> None:
        """Says whether this shard has something to send now; the younger waits while it has."""
        if self._declared != (wants, fence):
            self._declared = (wants, fence)
            with self._slot() as (mine, _):
                self._put(replace(mine, wants=wants, fence=fence))

    def take(self, tokens: int, size: int, *, alone: bool = False) -> bool:
        """Takes leave to send one request of `tokens` tokens with a dump of `size` bytes; False where it has to wait.

        alone: with nothing else in flight; a refusal holds everybody else back until it can be granted.
        """
        with self._slot() as (mine, others):
            if mine.alone and mine.requests:
                self.waits = Waits.ITSELF
                return False
            wants, fence = self._declared
            mine = replace(mine, alone=alone, wants=wants, fence=fence)
            granted = may_send(mine, others, tokens, size, self._budget.limits)
            if not granted:
                self.waits = waits_for(mine, others)
            else:
                mine = replace(mine, requests=mine.requests + 1, tokens=mine.tokens + tokens, bytes=mine.bytes + size)
            self._put(mine)
        return granted

    def answered(self, tokens: int) -> None:
        """The engine is done with a request of `tokens` tokens; its dump may still wait. Ends a time alone."""
        with self._slot() as (mine, _):
            # Only the last answer ends it: the wish for a time alone outlives the requests that it waits for.
            alone = mine.alone and mine.requests > 1
            self._put(replace(mine, requests=mine.requests - 1, tokens=mine.tokens - tokens, alone=alone))

    def taken(self, size: int) -> None:
        """A dump is copied and removed, or given up."""
        with self._slot() as (mine, _):
            self._put(replace(mine, bytes=mine.bytes - size))

    def close(self) -> None:
        with self._budget._locked():
            self._budget._write(self._place, Slot(0, 0.0))


def is_alive(pid: int) -> bool:
    """Whether a process of that number is there; 0 is none."""
    if not pid:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
