"""A request on its way through the engine, and how it ended."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from hscapture.rows import Extend
from hsengine.attention import KeyValues


@dataclass(slots=True, eq=False)
class Request:
    """max_new_tokens: 0 for a prefill alone. stop_tokens: ids that end a completion.
    computed: tokens of the prompt that have gone through the model. cached: of these, how many count as
    taken from a prefix cache; nobody captures their rows. received: seconds since the epoch.
    """

    rid: str
    input_ids: list[int]
    max_new_tokens: int = 0
    extra_key: str | None = None
    stop_tokens: frozenset[int] = frozenset()
    wants_capture: bool = False
    cached: int = 0
    computed: int = 0
    output_ids: list[int] = field(default_factory=list)
    kv: KeyValues | None = None
    received: float = field(default_factory=time.time)

    @property
    def remaining(self) -> int:
        """Tokens of the prompt still to be computed."""
        return len(self.input_ids) - self.computed

    def past_for(self, rows: int) -> KeyValues | None:
        """Where the next `rows` keep their keys and values; None where nothing will ever look back at them."""
        if self.kv is None and (rows < self.remaining or self.max_new_tokens):
            self.kv = KeyValues(len(self.input_ids) + self.max_new_tokens)
        return self.kv

    def extends(self, rows: int) -> list[Extend]:
        """The next `rows` of the prompt as a capture sees them, cached ones as somebody else's."""
        hidden = min(max(self.cached - self.computed, 0), rows)
        shown = rows - hidden
        found = []
        if hidden:
            found.append(Extend("", hidden, self.computed, wants_capture=False, is_last_chunk=False))
        if shown:
            found.append(Extend(self.rid, shown, self.computed + hidden, self.wants_capture, rows == self.remaining))
        return found


@dataclass(frozen=True, slots=True)
class Finish:
    """Why a request ended, under SGLang's names: ``length``, ``stop`` or ``abort``."""

    type: str
    detail: dict[str, object] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        return {"type": self.type, **self.detail}


def length(tokens: int) -> Finish:
    return Finish("length", {"length": tokens})


def stop(token: int) -> Finish:
    return Finish("stop", {"matched": token})


def abort(message: str) -> Finish:
    return Finish("abort", {"message": message, "status_code": None, "err_type": None})
