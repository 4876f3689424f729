from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsqueue.contracts.errors import UsageError
from hsqueue.contracts.layers import check_layers, eagle3_layers, parse_layers


@pytest.mark.parametrize(("depth", "layers"), [(7, (2, 3, 4)), (8, (2, 4, 5)), (32, (2, 16, 29)), (36, (2, 18, 33))])
def test_eagle3_takes_an_early_a_middle_and_a_late_layer(depth: int, layers: tuple[int, ...]) -> None:
    assert eagle3_layers(depth) == layers
    assert parse_layers("eagle3", depth) == layers


@pytest.mark.parametrize("depth", [-1, 0, 1, 2, 3, 4, 5, 6])
def test_a_model_too_shallow_for_three_layers_is_refused(depth: int) -> None:
    with pytest.raises(UsageError, match="at least 7 layers"):
        eagle3_layers(depth)


@given(st.integers(7, 500))
def test_eagle3s_layers_are_within_every_deeper_model(depth: int) -> None:
    check_layers(eagle3_layers(depth), depth)


def test_all_means_every_input_and_what_leaves_the_last_layer() -> None:
    assert parse_layers("all", 3) == (0, 1, 2, 3)


@pytest.mark.parametrize(("text", "layers"), [("0", (0,)), ("2,16,29", (2, 16, 29)), ("32", (32,)), (" 2, 3", (2, 3))])
def test_ids_are_taken_as_written(text: str, layers: tuple[int, ...]) -> None:
    assert parse_layers(text, 32) == layers


@pytest.mark.parametrize("text", ["", ",", "2,,3", "two", "2;3", "2-4", "1.5", "EAGLE3", "2,3,"])
def test_anything_else_is_not_understood(text: str) -> None:
    with pytest.raises(UsageError, match="not understood"):
        parse_layers(text, 32)


@pytest.mark.parametrize("text", ["33", "-1", "3,2", "2,2", "2,40", "-1,2"])
def test_ids_outside_the_model_or_out_of_order_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"expected 0 to 32, found"):
        parse_layers(text, 32)


def test_no_layer_at_all_is_refused() -> None:
    with pytest.raises(UsageError):
        check_layers((), 32)
