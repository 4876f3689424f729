from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hsengine.attention import KeyValues, Part, Step, causal_mask, packed_attention, running
from hsqueue.contracts.errors import EngineUnfit


@given(st.integers(1, 12), st.integers(0, 12), st.none() | st.integers(1, 30))
def test_a_row_sees_itself_and_what_lies_before_it(rows: int, past: int, window: int | None) -> None:
    mask = causal_mask(rows, past, window)
    for row in range(rows):
        position = past + row
        wanted = [k <= position and (window is None or k > position - window) for k in range(past + rows)]
        if mask is None:
            # Without a mask the attention is causal from the first key on, or one row sees everything.
            wanted_without = [True] * (past + rows) if rows == 1 else [k <= row for k in range(past + rows)]
            assert wanted == wanted_without
        else:
            assert mask[row].tolist() == wanted


def test_a_whole_prompt_needs_no_mask() -> None:
    assert causal_mask(50, 0, None) is None
    assert causal_mask(50, 0, 50) is None
    assert causal_mask(1, 50, None) is None


def test_keys_and_values_grow_in_place() -> None:
    kv = KeyValues(capacity=3)
    first, second = torch.rand(1, 2, 2, 4), torch.rand(1, 2, 1, 4)
    keys, values = kv.extend(0, first, first + 1)
    assert torch.equal(keys, first)
    kv.length = 2
    keys, values = kv.extend(0, second, second + 1)
    assert torch.equal(keys, torch.cat([first, second], dim=2))
    assert torch.equal(values, torch.cat([first, second], dim=2) + 1)


class Layer(torch.nn.Module):
    layer_idx = 0
    num_key_value_groups = 2
    is_causal = True


def test_neighbours_do_not_change_a_requests_attention() -> None:
    torch.manual_seed(0)
    sizes = [3, 1, 5]
    q, k, v = torch.rand(1, 4, 9, 8), torch.rand(1, 2, 9, 8), torch.rand(1, 2, 9, 8)
    with running(Step([Part([0] * n) for n in sizes])):
        together, _ = packed_attention(Layer(), q, k, v, None, scaling=0.3)
    begin = 0
    for n in sizes:
        rows = slice(begin, begin + n)
        with running(Step([Part([0] * n)])):
            alone, _ = packed_attention(Layer(), q[:, :, rows], k[:, :, rows], v[:, :, rows], None, scaling=0.3)
        assert torch.equal(together[:, rows], alone)
        begin += n


@pytest.mark.parametrize("argument", ["softcap", "s_aux", "position_bias"])
def test_another_kind_of_attention_is_refused(argument: str) -> None:
    q = torch.rand(1, 2, 1, 4)
    with running(Step([Part([0])])), pytest.raises(EngineUnfit, match=argument):
        packed_attention(Layer(), q, q, q, None, **{argument: 30.0})
