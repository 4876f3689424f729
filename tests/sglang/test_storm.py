"""Everything at once: what the worker gets is exact, and nothing else leaves a trace."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sglang import models
from tests.sglang.probe import Prober, prompt
from tests.sglang.server import Server, sglang_server
from tests.sglang.traffic import abort, disconnect, health_check, other_client, traffic

TTL = 10
"""Seconds that an unread dump may lie; what is waited for is read at once."""
PROMPTS = 500
MORE = 2000
ROOM = 48 << 20
"""Bytes that the server may grow by over the further prompts; one more prompt's states are 0.3 MB."""


@pytest.fixture(scope="module")
def server(model: Callable[[Callable[[], Any]], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    options = ("--chunked-prefill-size", "128", "--enable-mixed-chunk")
    settings = {"HSQ_DUMP_TTL": str(TTL)}
    where = tmp_path_factory.mktemp("server")
    with sglang_server(model(models.llama), where, *options, settings=settings, warmup=True) as started:
        yield started


@pytest.fixture(scope="module")
def prober(server: Server) -> Prober:
    return Prober(server)


def mixed_prompts(count: int) -> list[list[int]]:
    """Lengths of 1 to 400; two of three begin like others do, and some are the same."""
    chance = random.Random(count)
    found = []
    for _ in range(count):
        shared = prompt(chance.randrange(4), chance.randint(1, 200)) if chance.random() < 0.67 else []
        found.append(shared + prompt(chance.randrange(50), chance.randint(1, 200)))
    return found


def test_warm_up_made_no_dump(server: Server) -> None:
    assert server.dumps() == []


def test_every_prompt_is_exact_in_the_middle_of_everything(server: Server, prober: Prober) -> None:
    with traffic(
        server.url,
        health=(health_check, 5.0),
        other=(other_client, 10.0),
        aborts=(abort, 2.0),
        disconnects=(disconnect, 2.0),
    ) as done:
        found = prober.compare_all(mixed_prompts(PROMPTS), in_flight=16)
    assert all(done.values()), f"some traffic never happened: {done}"
    assert [one for one in found if not one.within_bars()] == []
    assert len(found) == PROMPTS
    assert any(len(one.chunks) > 1 for one in found)


def test_aborted_and_abandoned_requests_leave_nothing_behind(server: Server, prober: Prober) -> None:
    prober.compare(prompt(1, 5))
    server.await_empty(10 * TTL)
    assert server.complaints() == []


@pytest.mark.slow
def test_memory_does_not_grow(server: Server, prober: Prober) -> None:
    before = server.resident()
    chance = random.Random(0)
    with traffic(server.url, aborts=(abort, 2.0), disconnects=(disconnect, 2.0), other=(other_client, 5.0)):
        for start in range(0, MORE, PROMPTS):
            prober.fetch_all([prompt(start + k, chance.randint(1, 400)) for k in range(PROMPTS)], in_flight=16)
    grown = server.resident() - before
    assert grown < ROOM, f"{grown / 2**20:.0f} MiB more after {MORE} prompts"
    server.await_empty(10 * TTL)
