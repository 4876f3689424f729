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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hsworker.bell import Bell
from hsworker.turns import Limits, Slot, Waits, hears, is_turn, may_send, waits_for

SLOTS = 16
_SLOT = struct.Struct("<qdqq??qqq")


class Budget:
    """The shared state in `path`, made on first use. One object a process, for any of its threads."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self.limits = limits
        self._path = path
        self._bells: dict[int, Bell] = {}
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
        own = os.getpid()
        return {
            place: Slot(pid, *fields)
            for place, (pid, *fields) in enumerate(_SLOT.iter_unpack(self._map))
            if pid == own or is_alive(pid)
        }

    def _write(self, place: int, slot: Slot) -> None:
        _SLOT.pack_into(self._map, place * _SLOT.size, *slot)

    def _bell(self, place: int) -> Bell:
        """Of whoever has that place. Called under the lock."""
        if place not in self._bells:
            self._bells[place] = Bell(self._path.with_name(f"{self._path.name}.bell{place}"))
        return self._bells[place]

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
            return Share(self, place, self._bell(place))


class Share:
    """One shard's part of the budget. bell: rung when another one frees what this one was refused."""

    def __init__(self, budget: Budget, place: int, bell: Bell) -> None:
        self._budget, self._place, self._bell = budget, place, bell
        self._declared = (False, 0)

    def wait(self, timeout: float) -> bool:
        """Until another shard frees what this one was refused or ``wake`` is called; False after `timeout` seconds.

        Nobody rings for a process that was killed, so whoever waits for another has to look now and then.
        """
        return self._bell.wait(timeout)

    def wake(self) -> None:
        """Ends a wait of this process, or the next one."""
        self._bell.ring()

    @contextmanager
    def _slot(self) -> Iterator[tuple[Slot, list[Slot]]]:
        with self._budget._locked():
            slots = self._budget._read()
            mine = slots.pop(self._place)
            yield mine, list(slots.values())

    def _put(self, slot: Slot) -> None:
        self._budget._write(self._place, slot)

    def _free(self, change: Callable[[Slot], Slot]) -> None:
        """Changes this shard's slot, and rings for those whom that may let go on."""
        with self._budget._locked():
            slots = self._budget._read()
            slots[self._place] = change(slots[self._place])
            self._put(slots[self._place])
            listening = [
                self._budget._bell(place)
                for place, slot in slots.items()
                if place != self._place and hears(slot, (other for at, other in slots.items() if at != place))
            ]
        for bell in listening:
            bell.ring()

    def is_turn(self) -> bool:
        """Where it is not, ``wait`` ends when it is."""
        with self._slot() as (mine, others):
            found = is_turn(mine, others)
            self._put(mine._replace(waits=Waits.ITSELF if found else Waits.ELDER))
        return found

    def declare(self, *, wants: bool, fence: int) -> None:
        """Says whether this shard has something to send now; the younger waits while it has."""
        if self._declared != (wants, fence):
            self._declared = (wants, fence)
            self._free(lambda mine: mine._replace(wants=wants, fence=fence))

    def take(self, tokens: int, size: int, *, alone: bool = False) -> bool:
        """Takes leave to send one request of `tokens` tokens with a dump of `size` bytes; False where it has to wait.

        alone: with nothing else in flight; a refusal holds everybody else back until it can be granted.
        """
        with self._slot() as (mine, others):
            if mine.alone and mine.requests:
                return False
            wants, fence = self._declared
            mine = mine._replace(alone=alone, wants=wants, fence=fence, waits=Waits.ITSELF)
            granted = may_send(mine, others, tokens, size, self._budget.limits)
            if not granted:
                mine = mine._replace(waits=waits_for(mine, others))
            else:
                mine = mine._replace(requests=mine.requests + 1, tokens=mine.tokens + tokens, bytes=mine.bytes + size)
            self._put(mine)
        return granted

    def answered(self, tokens: int) -> None:
        """The engine is done with a request of `tokens` tokens; its dump may still wait. Ends a time alone."""
        # Only the last answer ends it: the wish for a time alone outlives the requests that it waits for.
        self._free(
            lambda mine: mine._replace(
                requests=mine.requests - 1, tokens=mine.tokens - tokens, alone=mine.alone and mine.requests > 1
            )
        )

    def taken(self, size: int) -> None:
        """A dump is copied and removed, or given up."""
        self._free(lambda mine: mine._replace(bytes=mine.bytes - size))

    def close(self) -> None:
        self._free(lambda _: Slot(0))


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
