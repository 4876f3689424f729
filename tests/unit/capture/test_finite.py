from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from hscapture.finite import finite_flags, nonfinite
from tests.unit.capture.states import HIDDEN, LAYERS, make_states


def names_after(row: int, column: int, value: float) -> tuple[str, ...]:
    """Names for two pieces of which the second holds `value` at one place of its auxiliary states."""
    good, bad = make_states([1, 2]), make_states([3, 4, 5])
    bad.aux[row, column] = value
    flags = finite_flags(bad.aux, len(LAYERS), bad.last, bad.prenorm)
    return nonfinite([good.finite, replace(bad, finite=flags).finite], LAYERS, "post")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("number", range(len(LAYERS)))
@pytest.mark.parametrize("within", [0, HIDDEN - 1])
def test_an_auxiliary_layer_is_named_by_its_id(number: int, within: int, value: float) -> None:
    assert names_after(1, number * HIDDEN + within, value) == (f"aux_hidden_states[layer {LAYERS[number]}]",)


def test_finite_states_have_no_names() -> None:
    assert names_after(0, 0, 1e30) == ()


@pytest.mark.parametrize(
    ("norm", "field", "name"),
    [
        ("post", "last", "last_hidden_state"),
        ("pre", "prenorm", "last_hidden_state_prenorm"),
        ("both", "last", "last_hidden_state"),
        ("both", "prenorm", "last_hidden_state_prenorm"),
    ],
)
def test_the_last_state_is_named_by_its_tensor(norm: str, field: str, name: str) -> None:
    states = make_states([1, 2], norm=norm)
    getattr(states, field)[1, 3] = float("nan")
    flags = finite_flags(states.aux, len(LAYERS), states.last, states.prenorm)
    assert nonfinite([flags], LAYERS, norm) == (name,)


def test_flags_are_kept_by_row() -> None:
    states = make_states([1, 2, 3], dtype=torch.bfloat16)
    states.aux[1, 0] = float("nan")
    flags = finite_flags(states.aux, len(LAYERS), states.last, None)
    assert flags.tolist() == [[True] * 4, [False, True, True, True], [True] * 4]
