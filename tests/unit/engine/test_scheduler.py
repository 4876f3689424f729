from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from queue import SimpleQueue

import pytest
import torch

from hscapture.assemble import Dump
from hsengine.attention import Part
from hsengine.misbehave import Misbehaviour, Mischief
from hsengine.model import Model
from hsengine.policy import Limits
from hsengine.request import Finish, Request
from hsengine.scheduler import Abort, Finished, Item, Scheduler, Stop
from hsengine.stats import Stats

WAIT = 30.0


@dataclass
class House:
    """A scheduler with its model, and everything that comes out of it."""

    model: Model
    limits: Limits = field(default_factory=Limits)
    plan: Misbehaviour = field(default_factory=Misbehaviour)
    dumps: dict[str, Dump] = field(default_factory=dict)
    ends: dict[str, Finish] = field(default_factory=dict)
    stats: Stats = field(default_factory=Stats)

    def run(self, *items: Item) -> None:
        """Hands in all items before the first pass and returns when their requests have ended."""
        inbox: SimpleQueue[Item] = SimpleQueue()
        wanted = {item.rid for item in items if isinstance(item, Request)}
        over = threading.Event()

        def submit_dump(dump: Dump) -> None:
            assert dump.rid not in self.ends, "the dump is handed over before the request ends"
            self.dumps[dump.rid] = dump

        def on_finished(finished: Finished) -> None:
            self.ends.update({request.rid: finish for request, finish in finished})
            if set(self.ends) >= wanted:
                over.set()

        for item in items:
            inbox.put(item)
        scheduler = Scheduler(inbox, self.model, self.limits, submit_dump, on_finished, self.stats, Mischief(self.plan))
        scheduler.start()
        try:
            assert over.wait(WAIT)
        finally:
            inbox.put(Stop())
            scheduler.join(WAIT)
        assert not scheduler.is_alive()


def request(rid: str, tokens: int, new: int = 0, capture: bool = True) -> Request:
    chance = random.Random(rid)
    return Request(rid, [chance.randrange(4096) for _ in range(tokens)], new, wants_capture=capture)


def off(house: House, one: Request) -> float:
    """Largest difference of a request's dump from a lone pass over its prompt."""
    dump = house.dumps[one.rid]
    alone = house.model.forward([Part(one.input_ids)])
    assert torch.equal(torch.cat([p.states.input_ids for p in dump.pieces]), alone.input_ids)
    return float((torch.cat([p.states.aux for p in dump.pieces]) - alone.aux).abs().max())


@pytest.fixture(params=[Limits(), Limits(16, 16, 4), Limits(7, 3, 2), Limits(1, 1, 1)])
def limits(request: pytest.FixtureRequest) -> Limits:
    found: Limits = request.param
    return found


def test_every_prompt_is_dumped_whole_under_any_limits(model: Model, limits: Limits) -> None:
    house = House(model, limits)
    batch = [request(f"r{n}", n + 1, capture=n % 3 != 0) for n in range(12)]
    house.run(*batch)
    assert set(house.dumps) == {r.rid for r in batch if r.wants_capture}
    for one in batch:
        if one.wants_capture:
            assert sum(house.dumps[one.rid].chunks) == len(one.input_ids)
            assert max(house.dumps[one.rid].chunks) <= min(limits.chunk, limits.prefill_tokens)
            assert off(house, one) <= 1e-3
    assert house.stats.prefill_tokens == sum(len(r.input_ids) for r in batch)
    assert {finish.type for finish in house.ends.values()} == {"length"}


def test_short_prompts_share_a_pass(model: Model) -> None:
    house = House(model)
    house.run(*(request(f"r{n}", 10) for n in range(20)))
    assert house.stats.prefill_passes <= 2


def test_completions_are_greedy_and_as_long_as_asked(model: Model, limits: Limits) -> None:
    house = House(model, limits)
    batch = [request(f"r{n}", 5 + n, new=n) for n in range(5)]
    house.run(*batch)
    for one in batch:
        assert len(one.output_ids) == one.max_new_tokens
        alone = request(one.rid, len(one.input_ids), one.max_new_tokens)
        House(model).run(alone)
        assert one.output_ids == alone.output_ids
        assert sum(house.dumps[one.rid].chunks) == len(one.input_ids), "decode steps are not part of a dump"


def test_a_stop_token_ends_a_completion(model: Model) -> None:
    free = request("a", 6, new=8)
    House(model).run(free)
    bound = request("a", 6, new=8)
    bound.stop_tokens = frozenset({free.output_ids[2]})
    house = House(model)
    house.run(bound)
    cut = free.output_ids.index(free.output_ids[2]) + 1
    assert bound.output_ids == free.output_ids[:cut]
    assert house.ends["a"].to_json() == {"type": "stop", "matched": free.output_ids[2]}


def test_an_abort_ends_waiting_requests_by_prefix_without_a_dump(model: Model) -> None:
    house = House(model)
    house.run(request("hsq.a.1", 5), request("hsq.a.10", 5), request("hsq.b.1", 5), Abort("hsq.a.1"))
    assert {rid: end.type for rid, end in house.ends.items()} == {
        "hsq.a.1": "abort", "hsq.a.10": "abort", "hsq.b.1": "length",
    }  # fmt: skip
    assert set(house.dumps) == {"hsq.b.1"}
    assert (house.stats.finished, house.stats.aborted) == (3, 2)


def test_a_cached_prefix_is_missing_from_the_dump(model: Model, limits: Limits) -> None:
    house = House(model, limits, Misbehaviour(radix=1.0))
    one = request("a", 20)
    house.run(one)
    dump = house.dumps["a"]
    assert 0 < one.cached < 20
    assert dump.prefix_len == one.cached
    assert dump.tokens == 20 - one.cached
    alone = model.forward([Part(one.input_ids)])
    found = torch.cat([p.states.aux for p in dump.pieces])
    assert float((found - alone.aux[one.cached :]).abs().max()) <= 1e-3


def test_odd_pieces_in_any_order_add_up(model: Model) -> None:
    house = House(model, Limits(64, 64, 8), Misbehaviour(odd_chunks=True, reorder=True, seed=5))
    batch = [request(f"r{n}", 30 + n) for n in range(6)]
    house.run(*batch)
    assert all(off(house, one) <= 1e-3 for one in batch)
    assert 1 in {rows for dump in house.dumps.values() for rows in dump.chunks}
    assert sum(len(dump.pieces) > 1 for dump in house.dumps.values()) >= 3
