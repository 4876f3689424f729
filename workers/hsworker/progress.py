"""The life of a leased shard as pure transitions: what to send next, and what an outcome means.

No I/O, no clock of its own: callers say what time it is. A sample is waiting, in flight, or ended.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hsqueue.contracts.errors import DumpAmbiguous, EngineDown, HsqueueError, Kind
from hsqueue.contracts.sample import Ending, GivenUp, Published

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
TOTAL_ATTEMPTS = 4
"""Times `max_attempts` that a sample may fail in different ways."""


@dataclass(frozen=True, slots=True)
class Send:
    """attempt: from 0. alone: to be sent while the engine has nothing else to do; the budget sees to that."""

    index: int
    attempt: int
    alone: bool


@dataclass(order=True, slots=True)
class _Waiting:
    alone: bool
    not_before: float
    order: int
    index: int


class ShardProgress:
    """tokens: index -> tokens of every sample that is to be asked for. suspects: those of them that were in flight
    when an engine went down; they are sent one at a time, after the others. max_attempts: failures of a sample
    in the same way that end it.

    The longest prompts are sent first, so that none of them is alone at the end.
    """

    def __init__(self, tokens: Mapping[int, int], suspects: Iterable[int], max_attempts: int) -> None:
        self.max_attempts = max_attempts
        self.done: dict[int, Published] = {}
        self.given_up: dict[int, GivenUp] = {}
        self.downed: set[int] = set()
        self.stopped_by: HsqueueError | None = None
        self._tokens = dict(tokens)
        self._attempts: Counter[int] = Counter()
        self._failures: Counter[tuple[int, str]] = Counter()
        self._in_flight: dict[int, Send] = {}
        alone = set(suspects)
        self._waiting = [_Waiting(i in alone, 0.0, -n, i) for i, n in self._tokens.items()]
        heapq.heapify(self._waiting)

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def draining(self) -> bool:
        """Nothing more is sent; what is in flight is awaited."""
        return self.stopped_by is not None

    @property
    def ended(self) -> bool:
        """Every sample has an ending."""
        return len(self.done) + len(self.given_up) == len(self._tokens)

    @property
    def over(self) -> bool:
        """Nothing is left to do under this lease."""
        return self.ended or (self.draining and not self._in_flight)

    def next(self, now: float) -> Send | None:
        """The sample to send now, if any. It counts as sent only when ``started`` says so.

        None while a sample is alone in flight, also when it is answered and its outcome not told yet: if it took the
        engine down, the next one would be taken for another that did.
        """
        if self._nothing_to_send():
            return None
        first = self._waiting[0]
        if first.not_before > now:
            return None
        return Send(first.index, self._attempts[first.index], first.alone)

    def _nothing_to_send(self) -> bool:
        return self.draining or not self._waiting or any(send.alone for send in self._in_flight.values())

    def pause(self, now: float) -> float | None:
        """Seconds until ``next`` may have something that it has not now; None where only an outcome can help."""
        if self._nothing_to_send():
            return None
        return max(0.0, self._waiting[0].not_before - now)

    def started(self, send: Send) -> None:
        waiting = heapq.heappop(self._waiting)
        assert waiting.index == send.index, "only what next() named can start"
        self._in_flight[send.index] = send
        self._attempts[send.index] += 1

    def succeeded(self, published: Published) -> None:
        del self._in_flight[published.index]
        self.done[published.index] = published

    def failed(self, index: int, error: HsqueueError, now: float) -> None:
        """What an error means for its sample, and for the shard."""
        send = self._in_flight.pop(index)
        if error.kind is Kind.SKIP:
            self._give_up(index, Ending.SKIPPED, error.name, str(error))
        elif error.kind is Kind.RETRY:
            self._retry(send, error, now)
        elif error.kind is Kind.ENGINE_DOWN:
            self.stopped_by = self.stopped_by or error
            if send.alone and not (isinstance(error, EngineDown) and not error.asked):
                self._give_up(
                    index, Ending.FAILED, "EngineKilled",
                    "the engine went down while this sample alone was in flight; quarantined, see hsqueue retry",
                )  # fmt: skip
            else:
                self.downed.add(index)
        else:
            self.stopped_by = self.stopped_by or error

    def stop(self, error: HsqueueError) -> None:
        """Stops sending, for a reason that is no sample's."""
        self.stopped_by = self.stopped_by or error

    def _retry(self, send: Send, error: HsqueueError, now: float) -> None:
        index = send.index
        self._failures[index, error.name] += 1
        same, total = self._failures[index, error.name], self._attempts[index]
        if same >= self.max_attempts or total >= self.max_attempts * TOTAL_ATTEMPTS:
            self._give_up(index, Ending.FAILED, error.name, str(error))
            return
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (total - 1))
        alone = send.alone or isinstance(error, DumpAmbiguous)
        heapq.heappush(self._waiting, _Waiting(alone, now + pause, -self._tokens[index], index))

    def _give_up(self, index: int, ending: Ending, name: str, detail: str) -> None:
        self.given_up[index] = GivenUp(index, ending, self._attempts[index], name, detail[:500])
