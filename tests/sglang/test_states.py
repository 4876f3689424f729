"""The states of a real SGLang are those of transformers on the same weights, however prompts were scheduled."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hsqueue.contracts.dump import AUX
from hsqueue.contracts.layers import eagle3_layers
from tests.sglang import models
from tests.sglang.probe import LAST_BAR, RETURNS, Prober, prompt
from tests.sglang.server import Server, sglang_server

CHUNK = 64
Build = Callable[[], Any]


@pytest.fixture(scope="module", params=[models.llama, models.qwen3, models.qwen3_moe], ids=lambda build: build.__name__)
def server(
    request: pytest.FixtureRequest, model: Callable[[Build], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("server")
    with sglang_server(model(request.param), directory, "--chunked-prefill-size", str(CHUNK), RETURNS) as started:
        yield started


@pytest.fixture(scope="module")
def prober(server: Server) -> Prober:
    return Prober(server)


def test_a_lone_prompt_in_one_piece_is_bit_equal(server: Server, prober: Prober) -> None:
    # Experts are added up in another order than transformers adds them.
    bar = LAST_BAR if "num_experts" in (server.model / "config.json").read_text() else 0.0
    for tokens in (1, 2, 33, CHUNK):
        found = prober.compare(prompt(tokens, tokens))
        assert found.chunks == (tokens,)
        assert found.ids
        assert max(found.aux, found.last) <= bar


def test_auxiliary_states_are_the_bits_that_sglang_returns_itself(prober: Prober) -> None:
    # A model that keeps auxiliary layers returns these in place of its last state.
    for tokens in (2, CHUNK):
        dumped, returned = prober.fetch_with_own(prompt(tokens, tokens))
        assert torch.equal(dumped[AUX], returned)


def test_a_long_prompt_is_stitched_from_its_chunks(prober: Prober) -> None:
    found = prober.compare(prompt(300, 300))
    assert sum(found.chunks) == 300
    assert len(found.chunks) >= 5
    assert found.within_bars()


@pytest.mark.parametrize("in_flight", [4, 16, 64])
def test_prompts_in_flight_together_keep_their_own_rows(prober: Prober, in_flight: int) -> None:
    chance = random.Random(in_flight)
    prompts = [prompt(1000 * in_flight + k, chance.randint(1, 300)) for k in range(3 * in_flight)]
    found = prober.compare_all(prompts, in_flight)
    assert [one for one in found if not one.within_bars()] == []
    assert any(len(one.chunks) > 1 for one in found)


def test_the_card_says_what_the_engine_is(server: Server, prober: Prober) -> None:
    card, info = prober.card, server.info()
    assert card.layers == card.layers_held == eagle3_layers(models.LAYERS)
    assert (card.norm, card.dtype, card.problem) == ("post", "float32", "")
    assert (card.hidden_size, card.vocab_size, card.num_layers) == (128, models.VOCABULARY, models.LAYERS)
    assert card.server == f"sglang {info['version']}"
    assert (card.port, card.instance) == (info["port"], info["hsq_instance"])
    assert card.model == str(server.model.resolve())


def test_the_longest_prompt_that_the_card_promises_is_taken(prober: Prober) -> None:
    assert prober.compare(prompt(7, prober.card.context_length)).within_bars()


def test_nothing_is_left_and_nothing_went_wrong(server: Server, prober: Prober) -> None:
    prober.compare(prompt(1, 5))
    assert server.dumps() == []
    assert server.complaints() == []
