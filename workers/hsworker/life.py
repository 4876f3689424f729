"""A pinned worker's life as pure transitions: from what is seen to what is to be done. No I/O, no clock.

    SERVING ── a pause is asked for ──► PAUSED ── what it waits for is back ──► SERVING
       └───────────── asked to stop ──────┴──────────► STOPPING

While paused or stopping a worker takes no message and no lease; its leases have been given back.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class State(Enum):
    SERVING = "serving"
    PAUSED = "paused"
    STOPPING = "stopping"


class Action(Enum):
    """What a transition asks of the worker's main process, in this order."""

    CLEAR_PAUSE = "clear the pause"
    TELL = "tell how the worker stands"


@dataclass(frozen=True, slots=True)
class Pause:
    """kind: ``engine`` or ``volume``, what has to recover. run_dir: of the run whose volume it is, or empty.
    reason: for people.
    """

    kind: str
    run_dir: str
    reason: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What one look finds. pause: asked for by a child, if any. recovered: what it waits for is back.
    stopping: the worker was asked to end.
    """

    pause: Pause | None = None
    recovered: bool = False
    stopping: bool = False


@dataclass(frozen=True, slots=True)
class Life:
    """state, and why it is PAUSED."""

    state: State = State.SERVING
    pause: Pause | None = None

    @property
    def consumes(self) -> bool:
        """Whether it is to take messages. A state, to be brought about again and again, since asking once can fail."""
        return self.state is State.SERVING

    @property
    def reason(self) -> str:
        """Why it is paused, for people; empty in other states."""
        return self.pause.reason if self.pause else ""

    def next(self, seen: Seen) -> tuple[Life, tuple[Action, ...]]:
        """The life after one look, and what to do to get there."""
        if self.state is State.STOPPING:
            return self, ()
        if seen.stopping:
            return Life(State.STOPPING), (Action.TELL,)
        if seen.pause is None:
            # A pause that somebody took away by hand ends like one whose cause is gone.
            return (self, ()) if self.state is State.SERVING else (Life(), (Action.TELL,))
        if self.state is State.SERVING:
            return Life(State.PAUSED, seen.pause), (Action.TELL,)
        if seen.recovered:
            return Life(), (Action.CLEAR_PAUSE, Action.TELL)
        return Life(State.PAUSED, seen.pause), (Action.TELL,) if seen.pause != self.pause else ()
