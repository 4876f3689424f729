"""Servers of several ranks on the CPU: one dump for each prompt, one card, and the states of transformers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hsworker.engine import EngineClient
from hsworker.pinning import Told, check_engine, probe
from tests.sglang import models
from tests.sglang.probe import Prober, prompt
from tests.sglang.server import OF_SEVERAL_RANKS, Server, sglang_server

CHUNK = 64


@dataclass(frozen=True, slots=True)
class Ranks:
    """option: of the server. marks: of the ranks that compute prompts of their own, in its log."""

    option: str
    marks: tuple[str, ...]


DATA = Ranks("--dp-size", (" DP0]", " DP1]"))
TENSOR = Ranks("--tp-size", (" TP0]",))


@pytest.fixture(scope="module", params=[DATA, TENSOR], ids=["dp", "tp"])
def ranks(request: pytest.FixtureRequest) -> Ranks:
    found: Ranks = request.param
    return found


@pytest.fixture(scope="module")
def server(
    ranks: Ranks, model: Callable[[Callable[[], Any]], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    options = ("--chunked-prefill-size", str(CHUNK), ranks.option, "2")
    where = tmp_path_factory.mktemp("server")
    with sglang_server(model(models.llama), where, *options, settings=OF_SEVERAL_RANKS) as started:
        yield started


@pytest.fixture(scope="module")
def prober(server: Server) -> Prober:
    return Prober(server)


def test_a_lone_prompt(ranks: Ranks, prober: Prober) -> None:
    found = prober.compare(prompt(0, 40))
    assert found.within_bars()
    if ranks is DATA:
        assert (found.aux, found.last) == (0.0, 0.0)


def test_each_prompt_has_one_dump_and_it_is_its_own(ranks: Ranks, server: Server, prober: Prober) -> None:
    chance = random.Random(2)
    found = prober.compare_all([prompt(k, chance.randint(1, 200)) for k in range(32)], in_flight=16)
    assert [one for one in found if not one.within_bars()] == []
    assert any(len(one.chunks) > 1 for one in found)
    log = server.log.read_text()
    assert [f"{mark} Prefill" in log for mark in ranks.marks] == [True] * len(ranks.marks)
    # A second writer would find the dump there, and say so, or leave its own behind.
    assert server.complaints() == []
    assert server.dumps() == []


def test_all_ranks_are_one_engine_that_a_worker_accepts(ranks: Ranks, server: Server) -> None:
    card, client = server.card(), EngineClient(server.url)
    assert Told.of(server.info()) == Told(card.instance, "")
    assert card.ranks == {"tp": 1, "pp": 1, "dp": 1} | {ranks.option.strip("-").removesuffix("-size"): 2}
    check_engine(client, card)
    probe(client, server.dump_dir, card)
