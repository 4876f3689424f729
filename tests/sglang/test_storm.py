"""Everything at once: what the worker gets is exact, and nothing else leaves a trace."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
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
STEP = 250
ROOM = 6 << 20
"""Bytes that the second half of the further prompts may take beside the first: 6 KiB for each prompt, whose states take
100 KiB on average."""


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


def short_prompts(start: int, count: int) -> list[list[int]]:
    """Most of them one pass shared by several, some of several chunks."""
    chance = random.Random(start)
    return [prompt(start + k, chance.randint(1, 40) if k % 10 else chance.randint(150, 300)) for k in range(count)]


def test_memory_does_not_grow(server: Server, prober: Prober) -> None:
    resident = []
    with traffic(server.url, aborts=(abort, 0.5), disconnects=(disconnect, 0.5), other=(other_client, 1.0)) as done:
        for start in range(0, MORE, STEP):
            prober.fetch_all(short_prompts(start, STEP), in_flight=64)
            resident.append(server.resident())
    assert all(done.values()), f"some traffic never happened: {done}"
    half = len(resident) // 2
    grown = median(resident[half:]) - median(resident[:half])
    assert grown < ROOM, f"{grown / 2**20:.1f} MiB more after {MORE // 2} prompts, of {[r >> 20 for r in resident]} MiB"
    server.await_empty(10 * TTL)
    assert server.complaints() == []
