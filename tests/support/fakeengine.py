"""An engine in this process that answers and dumps as a test tells it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hsqueue.contracts.card import EngineCard
from hsqueue.contracts.rid import RequestId, parse_rid
from hsworker.matching import Response
from tests.support.volume import TARGET

CONTEXT_LENGTH = 100

CARD = EngineCard(
    contract=1, instance="i1", model=TARGET.model, weights=TARGET.weights, num_layers=8,
    hidden_size=TARGET.hidden_size, vocab_size=TARGET.vocab_size, context_length=CONTEXT_LENGTH, dtype=TARGET.dtype,
    layers=TARGET.layers, layers_asked=TARGET.layers, layers_held=TARGET.layers, norm="post", server="sglang 0.5",
    host="h", port=1, pid=1, started=0.0, ranks={"tp": 1},
)  # fmt: skip


@dataclass
class FakeEngine:
    """dump: writes the dump of a request. error: raised after that. respond: changes the response."""

    dump: Callable[[RequestId], object] = lambda rid: None
    error: BaseException | None = None
    respond: Callable[[Response], Response] = lambda response: response
    stands: bool = True
    asked: list[RequestId] = field(default_factory=list)

    def prefill(self, rid: str, input_ids: list[int]) -> Response:
        parsed = parse_rid(rid)
        assert parsed is not None
        self.asked.append(parsed)
        self.dump(parsed)
        if self.error is not None:
            raise self.error
        return self.respond(Response(rid, len(input_ids), 0, "length"))

    def alive(self) -> bool:
        return self.stands
