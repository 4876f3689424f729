from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsqueue.contracts.card import EngineCard
from hsqueue.contracts.errors import EngineUnfit

CARD = EngineCard(
    contract=1, instance="i1", model="models/tiny", weights="0" * 16, num_layers=8, hidden_size=64, vocab_size=4096,
    context_length=2048, dtype="bfloat16", layers=(2, 4, 5), layers_asked=(1, 3, 4), layers_held=(2, 4, 5),
    norm="post", server="sglang 0.5.23", host="127.0.0.1", port=30000, pid=12, started=1.5e9,
    ranks={"tp": 1, "pp": 1, "dp": 1}, problem="",
)  # fmt: skip
FIELDS = json.loads(CARD.to_json())
TEXTS = ("instance", "model", "weights", "dtype", "norm", "server", "host")
SIZES = ("num_layers", "hidden_size", "vocab_size", "context_length")
LAYERS = ("layers", "layers_asked", "layers_held")
WRONG: dict[str, list[object]] = {
    **{name: [None, 1, ["x"]] for name in TEXTS},
    **{name: [None, "64", 1.5, True, -1, 0] for name in SIZES},
    **{name: [None, "30000", 1.5] for name in ("port", "pid")},
    **{name: [None, 2, "245", [2.5], ["2"], [True], {}, [float("inf")]] for name in LAYERS},
    "started": ["now", None],
    "ranks": [None, [1], {"tp": "1"}],
    "problem": [None, 1],
}


def test_a_card_comes_back_as_it_was_written() -> None:
    assert EngineCard.from_json(CARD.to_json()) == CARD
    assert EngineCard.from_json(CARD.to_json().encode()) == CARD


def test_the_target_is_what_a_run_is_planned_for() -> None:
    target = CARD.target
    assert (target.model, target.weights, target.layers, target.norm) == ("models/tiny", "0" * 16, (2, 4, 5), "post")
    assert (target.dtype, target.hidden_size, target.vocab_size) == ("bfloat16", 64, 4096)


@pytest.mark.parametrize("version", [0, 2, "1", None, [1]])
def test_another_contract_version_is_named(version: object) -> None:
    with pytest.raises(EngineUnfit, match=r"another contract version.*expected 1") as caught:
        EngineCard.from_json(json.dumps({**FIELDS, "contract": version}))
    assert caught.value.found == version


@pytest.mark.parametrize("name", sorted(FIELDS.keys() - {"problem"}))
def test_a_card_without_a_field_is_damaged(name: str) -> None:
    with pytest.raises(EngineUnfit, match="damaged"):
        EngineCard.from_json(json.dumps({k: v for k, v in FIELDS.items() if k != name}))


def test_a_field_of_a_later_version_is_passed_over() -> None:
    assert EngineCard.from_json(json.dumps({**FIELDS, "more": 1})) == CARD


@pytest.mark.parametrize("name", sorted(WRONG))
def test_a_field_of_the_wrong_type_is_damage_and_no_crash_later(name: str) -> None:
    for value in WRONG[name]:
        with pytest.raises(EngineUnfit):
            EngineCard.from_json(json.dumps({**FIELDS, name: value}))


@pytest.mark.parametrize(("name", "value"), [("dtype", "int8"), ("norm", "rms")])
def test_a_dtype_or_norm_that_does_not_exist_is_damage(name: str, value: str) -> None:
    with pytest.raises(EngineUnfit):
        EngineCard.from_json(json.dumps({**FIELDS, name: value}))


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"1", b"null", b'"card"', b"\xff\xfe\x00", b"[" * 100_000])
def test_what_is_no_card_is_damage(text: bytes) -> None:
    with pytest.raises(EngineUnfit, match="damaged"):
        EngineCard.from_json(text)


@given(st.integers(0, len(CARD.to_json()) - 1))
def test_a_card_cut_short_is_damage(length: int) -> None:
    with pytest.raises(EngineUnfit, match="damaged"):
        EngineCard.from_json(CARD.to_json()[:length])
