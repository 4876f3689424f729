from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from hscapture.sglang.decoder import Capture
from hscapture.sglang.describe import build_card, head_scale, model_directory, problem_card
from hsqueue.contracts.card import EngineCard
from hsqueue.contracts.errors import EngineUnfit
from hsqueue.contracts.weights import weights_digest

MODEL = SimpleNamespace(num_hidden_layers=8, hidden_size=128, vocab_size=2048, dtype=torch.bfloat16, context_len=4096)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps({"num_hidden_layers": 8}))
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    return tmp_path


def arguments(model: Path, load_format: str = "auto") -> SimpleNamespace:
    return SimpleNamespace(
        model_path=str(model), revision=None, load_format=load_format, host="127.0.0.1", port=30000, tp_size=2
    )


def test_the_card_is_what_sglang_says(model: Path) -> None:
    card = build_card(arguments(model), MODEL, "0.5.23", "post", (2, 4, 5), Capture((1, 3, 4), (2, 4, 5)))
    assert EngineCard.from_json(card.to_json()) == card
    assert (card.server, card.port, card.dtype, card.weights) == (
        "sglang 0.5.23", 30000, "bfloat16", weights_digest(model),
    )  # fmt: skip
    assert (card.layers, card.layers_asked, card.layers_held) == ((2, 4, 5), (1, 3, 4), (2, 4, 5))
    assert card.ranks == {"tp": 2, "pp": 1, "dp": 1}
    assert card.context_length == 4090


def test_random_weights_are_told_from_real_ones(model: Path) -> None:
    cards = [build_card(arguments(model, how), MODEL, "0", "post", (), Capture((), ())) for how in ("auto", "dummy")]
    assert [card.weights.startswith("dummy-") for card in cards] == [False, True]


def test_all_processes_of_a_server_are_one_instance(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HSQ_INSTANCE", raising=False)
    first, second = (problem_card("x", "0") for _ in range(2))
    assert first.instance == second.instance


def test_a_card_with_a_problem_can_be_read() -> None:
    card = problem_card("speculative decoding is on", "0.5.23")
    assert EngineCard.from_json(card.to_json()).problem == "speculative decoding is on"


def test_a_model_that_is_nowhere_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(EngineUnfit, match="local directory"):
        model_directory("nobody/nothing", None)


@pytest.mark.parametrize(("value", "scale"), [(None, None), (0, None), (24, 24.0)])
def test_the_heads_scale_is_the_text_models(value: float | None, scale: float | None) -> None:
    text = SimpleNamespace(logits_mup_width_multiplier=value)
    assert head_scale(SimpleNamespace(hf_text_config=text)) == scale
