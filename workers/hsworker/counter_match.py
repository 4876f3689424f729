"""Choosing a dump by its length alone, for the older layout whose dumps name no request. Pure bookkeeping.

A length is as good as a name while one request of that length is in flight and nothing else makes dumps of it.
Where that does not hold, nothing is taken: the request is ambiguous and is tried again alone.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

SHORTEST = 2
"""Tokens. Health checks and decode steps leave dumps of one token, which no prompt can be told from."""


@dataclass(frozen=True, slots=True)
class Ambiguity:
    """Why a length picks no dump, in words."""

    why: str


class CounterMatcher:
    """stale: identities of the dumps that lay there before; they belong to nobody. settle: seconds for which a
    candidate has to stay the only one. patience: seconds after which a dump that was never seen is not expected
    any more, and for which a length rests after a dump of it that nobody asked for.
    """

    def __init__(self, stale: set[Hashable], settle: float, patience: float) -> None:
        self.settle, self.patience = settle, patience
        self._known = set(stale)
        self._waiting: dict[str, int] = {}
        self._candidates: dict[int, list[tuple[Hashable, float]]] = {}
        self._orphans: dict[int, list[float]] = {}
        self._foreign: dict[int, float] = {}

    def may_announce(self, tokens: int, now: float) -> bool | Ambiguity:
        """Whether a request of this length may be sent now; False: later; Ambiguity: never."""
        if tokens < SHORTEST:
            return Ambiguity(f"prompts of fewer than {SHORTEST} tokens look like health checks")
        self._expire(tokens, now)
        return not (tokens in self._foreign or tokens in self._orphans or tokens in self._waiting.values())

    def announce(self, rid: str, tokens: int) -> None:
        self._waiting[rid] = tokens
        self._candidates.pop(tokens, None)

    def is_new(self, identity: Hashable) -> bool:
        return identity not in self._known

    def appeared(self, identity: Hashable, tokens: int, now: float) -> None:
        """A dump of that many tokens is there. Each identity counts once."""
        if identity in self._known:
            return
        self._known.add(identity)
        orphans = self._orphans.get(tokens)
        if orphans:
            orphans.pop()
            if not orphans:
                del self._orphans[tokens]
        elif tokens in self._waiting.values():
            self._candidates.setdefault(tokens, []).append((identity, now))
        else:
            self._foreign[tokens] = now + self.patience

    def choose(self, rid: str, now: float) -> Hashable | Ambiguity | None:
        """The dump of a request that has been answered; None: not yet."""
        tokens = self._waiting[rid]
        found = self._candidates.get(tokens, [])
        if len(found) > 1:
            self._foreign[tokens] = now + self.patience
            return Ambiguity(f"{len(found)} dumps of {tokens} tokens appeared for one request")
        if found and now - found[0][1] >= self.settle:
            return found[0][0]
        return None

    def forget(self, rid: str, now: float, *, orphaned: bool) -> None:
        """A request is over. orphaned: its dump may yet appear, so its length waits until it has or cannot."""
        tokens = self._waiting.pop(rid, None)
        if tokens is None:
            return
        arrived = self._candidates.pop(tokens, [])
        if orphaned and not arrived:
            self._orphans.setdefault(tokens, []).append(now + self.patience)

    def _expire(self, tokens: int, now: float) -> None:
        if self._foreign.get(tokens, now) < now:
            del self._foreign[tokens]
        left = [deadline for deadline in self._orphans.get(tokens, []) if deadline > now]
        if left:
            self._orphans[tokens] = left
        else:
            self._orphans.pop(tokens, None)
