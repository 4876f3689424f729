"""What real servers and their plugins have been seen to do wrong, on demand and repeatably.

Every decision about a request is a function of the seed, the kind of trouble and the rid, so it does not
depend on timing; another attempt has another rid, and so another fate.
"""

from __future__ import annotations

import json
import random
import uuid
from dataclasses import dataclass, fields
from typing import Any

from hsengine.request import Request
from hsqueue.contracts.errors import UsageError


@dataclass(frozen=True, slots=True)
class Misbehaviour:
    """All off by default, all usable at once. Names of kind: probability of a request, from 0 to 1.

    ===================== =======================================================================
    ``warmup``            one request of six tokens under a plain uuid before the first is served
    ``health_every``      seconds between the engine's own one-token requests; 0: none
    ``reorder``           waiting requests are shuffled before every forward pass
    ``odd_chunks``        prompts are cut into pieces of random sizes, down to one token
    ``late``              dumps appear up to this many seconds after the response
    ``slow``              responses come up to this many seconds after the prefill
    ``stale_dumps``       dumps of former runs that lie in the directory at the start
    ``stale_lengths``     their numbers of tokens, in turn; empty: random
    ``recount``           the counter layout counts from 0 and writes over what lies there
    ``radix``             kind: a prefix counts as cached, unless the request has an ``extra_key``
    ``radix_always``      cached prefixes also for requests with an ``extra_key``
    ``abort``             kind: ends as aborted, without a dump
    ``unavailable``       kind: 503
    ``wrong_id``          kind: the response names another request
    ``cut``               kind: the prompt's last token is cut off silently
    ``poison``            token ids; a prompt that begins with them kills the process
    ``die_after``         the process dies when it has taken in this many requests; 0: never
    ``lost``              kind: no dump
    ``swap``              kind: the dump holds the states of the prompt dumped before it
    ``shift``             kind: the dump's rows begin one row too early
    ``nan``               kind: one state of the dump is NaN
    ``torn``              kind: the dump's file is cut short
    ===================== =======================================================================
    """

    seed: int = 0
    warmup: bool = False
    health_every: float = 0.0
    reorder: bool = False
    odd_chunks: bool = False
    late: float = 0.0
    slow: float = 0.0
    stale_dumps: int = 0
    stale_lengths: tuple[int, ...] = ()
    recount: bool = False
    radix: float = 0.0
    radix_always: bool = False
    abort: float = 0.0
    unavailable: float = 0.0
    wrong_id: float = 0.0
    cut: float = 0.0
    poison: tuple[int, ...] = ()
    die_after: int = 0
    lost: float = 0.0
    swap: float = 0.0
    shift: float = 0.0
    nan: float = 0.0
    torn: float = 0.0


def parse_misbehaviour(text: str) -> Misbehaviour:
    """From a JSON object of the fields above. Raises UsageError, naming the field."""
    try:
        table = json.loads(text)
    except ValueError as error:
        raise UsageError(f"--misbehave is not JSON ({error})") from None
    if not isinstance(table, dict):
        raise UsageError("--misbehave must be a JSON object", found=type(table).__name__)
    defaults = {field.name: field.default for field in fields(Misbehaviour)}
    for name, value in table.items():
        if name not in defaults:
            raise UsageError("--misbehave names an unknown trouble", expected=", ".join(defaults), found=name)
        table[name] = _typed(name, value, defaults[name])
    return Misbehaviour(**table)


def _typed(name: str, value: object, default: object) -> object:
    kind = type(default)
    if kind is tuple and isinstance(value, list) and all(type(item) is int for item in value):
        return tuple(value)
    if kind is float and type(value) in (int, float):
        return float(str(value))
    if kind is type(value):
        return value
    raise UsageError(f"--misbehave: {name} must be of type {kind.__name__}", found=repr(value)[:60])


class Dice:
    """Chance that depends on nothing but the seed, the kind and the rid."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def roll(self, kind: str, rid: str) -> random.Random:
        return random.Random(f"{self._seed}/{kind}/{rid}")  # noqa: S311 - trouble, not cryptography

    def hits(self, kind: str, rid: str, probability: float) -> bool:
        return probability > 0 and self.roll(kind, rid).random() < probability

    def seconds(self, kind: str, rid: str, most: float) -> float:
        return self.roll(kind, rid).uniform(0, most) if most > 0 else 0.0


class Mischief:
    """The scheduler's and the HTTP side's trouble. Belongs to the scheduler's thread where it keeps state."""

    def __init__(self, plan: Misbehaviour) -> None:
        self.plan = plan
        self.dice = Dice(plan.seed)
        self._order = self.dice.roll("reorder", "")
        self._pieces = self.dice.roll("odd_chunks", "")
        self._taken = 0

    def aborts(self, request: Request) -> bool:
        return self.dice.hits("abort", request.rid, self.plan.abort)

    def unavailable(self, rid: str) -> bool:
        return self.dice.hits("unavailable", rid, self.plan.unavailable)

    def response_delay(self, rid: str) -> float:
        return self.dice.seconds("slow", rid, self.plan.slow)

    def warmup_rid(self) -> str:
        """A plain uuid, as SGLang's warm-up has."""
        return uuid.UUID(int=self.dice.roll("warmup", "").getrandbits(128), version=4).hex

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """The response's body, sometimes about another request."""
        meta = body["meta_info"]
        if not self.dice.hits("wrong_id", meta["id"], self.plan.wrong_id):
            return body
        return {**body, "meta_info": {**meta, "id": meta["id"][::-1]}}

    def cut(self, request: Request) -> None:
        """Shortens a prompt, as a server does that truncates what is too long without saying so."""
        if len(request.input_ids) > 1 and self.dice.hits("cut", request.rid, self.plan.cut):
            request.input_ids = request.input_ids[:-1]

    def kills(self, request: Request) -> bool:
        """Whether the process ends on taking this request in; to be asked once a request."""
        self._taken += 1
        poison = self.plan.poison
        return self._taken == self.plan.die_after or (
            bool(poison) and tuple(request.input_ids[: len(poison)]) == poison
        )

    def cached_tokens(self, request: Request) -> int:
        """Tokens that count as taken from a prefix cache; as in a real one, the last is always computed."""
        safe = request.extra_key is not None and not self.plan.radix_always
        if safe or len(request.input_ids) < 2 or not self.dice.hits("radix", request.rid, self.plan.radix):
            return 0
        return self.dice.roll("radix length", request.rid).randint(1, len(request.input_ids) - 1)

    def reorder(self, waiting: list[Request]) -> None:
        if self.plan.reorder:
            self._order.shuffle(waiting)

    def chunk(self, most: int) -> int:
        """Rows of the next piece of a prompt, at most `most`."""
        if not self.plan.odd_chunks:
            return most
        # Mostly small pieces, with one token a common case rather than a rarity.
        return min(most, int(self._pieces.paretovariate(0.5)))
