from __future__ import annotations

import pytest
import torch
from torch import nn

from hscapture.sglang.decoder import arm, find_decoder
from hscapture.sglang.taps import tap_final_norm, tap_first_layer
from hsqueue.contracts.errors import EngineUnfit
from tests.unit.capture.sglang.fakes import FakeModel


def test_the_text_models_stack_is_found_and_not_the_vision_towers() -> None:
    model = FakeModel()
    found = find_decoder(model, 8, 4)
    assert found.layers is model.model.layers
    assert found.norm is model.model.norm


def test_a_model_without_such_a_stack_is_refused() -> None:
    with pytest.raises(EngineUnfit, match="no stack of 9 layers"):
        find_decoder(FakeModel(), 9, 4)


@pytest.mark.parametrize(("convention", "asked"), [(1, (1, 4)), (0, (2, 5))])
def test_whatever_the_convention_the_model_holds_inputs_of_layers(convention: int, asked: tuple[int, ...]) -> None:
    model = FakeModel(convention=convention)
    found = arm(model, (2, 5), 8, default=False)
    assert (found.asked, found.held) == (asked, (2, 5))


def test_the_default_is_the_models_own() -> None:
    assert arm(FakeModel(convention=5), (2, 4, 5), 8, default=True).held == (2, 4, 5)


def test_the_ends_are_not_asked_of_the_model() -> None:
    model = FakeModel()
    assert arm(model, tuple(range(9)), 8, default=False).held == tuple(range(1, 8))
    assert arm(nn.Linear(1, 1), (0, 8), 8, default=False).held == ()


def test_a_model_that_holds_other_layers_is_refused() -> None:
    with pytest.raises(EngineUnfit, match=r"expected \[2, 5\] held, found \[5, 8\]"):
        arm(FakeModel(convention=3), (2, 5), 8, default=False)


def test_a_default_other_than_the_contracts_is_refused() -> None:
    with pytest.raises(EngineUnfit, match=r"expected \[3, 4, 5\] held, found \[2, 4, 5\]"):
        arm(FakeModel(), (3, 4, 5), 8, default=True)


def test_a_model_that_captures_nothing_is_refused() -> None:
    with pytest.raises(EngineUnfit, match="Linear cannot capture"):
        arm(nn.Linear(1, 1), (2, 5), 8, default=False)


def test_taps_see_sums_and_keep_them_from_later_writes() -> None:
    model = FakeModel(depth=1)
    decoder = find_decoder(model, 1, 4)
    first, final = tap_first_layer(decoder), tap_final_norm(decoder)
    first.wanted = final.wanted = True
    embedded = torch.ones(3, 4)
    model.model(embedded)
    embedded.zero_()
    seen, last = first.take(), final.take()
    assert seen is not None
    assert seen.unique().tolist() == [1.0]
    assert last is not None
    assert last.unique().tolist() == [3.0]
    assert first.take() is None


def test_taps_cost_nothing_where_nobody_wants_them() -> None:
    model = FakeModel(depth=1)
    tap = tap_first_layer(find_decoder(model, 1, 4))
    model.model(torch.ones(3, 4))
    assert tap.take() is None
