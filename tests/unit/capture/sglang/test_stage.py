from __future__ import annotations

import pytest
import torch

from hscapture.sglang.pool import BufferPool, host_memory
from hscapture.sglang.stage import ALIGNMENT, Stager, carve, packed_bytes
from tests.unit.capture.states import make_states


@pytest.mark.parametrize("norm", ["post", "pre", "both"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_states_arrive_whole_in_memory_of_their_own(norm: str, dtype: torch.dtype) -> None:
    states = make_states([1, 2, 3], norm, dtype)
    staged = Stager(torch.device("cpu"), BufferPool(host_memory(False), 0)).stage(states)
    staged.ready()
    for name in ("input_ids", "aux", "last", "prenorm", "finite"):
        before, after = getattr(states, name), getattr(staged.states, name)
        if before is None:
            assert after is None
            continue
        assert after.dtype == before.dtype
        assert torch.equal(after, before)
        assert after.untyped_storage().data_ptr() == staged.buffer.memory.untyped_storage().data_ptr()


def test_views_do_not_overlap_and_are_aligned() -> None:
    tensors = [torch.zeros(3, dtype=torch.bool), torch.zeros(5, 7), torch.zeros(2, dtype=torch.int64)]
    memory = torch.zeros(packed_bytes(tensors), dtype=torch.uint8)
    views = carve(memory, tensors)
    for number, view in enumerate(views):
        view.fill_(number)
        assert (view.data_ptr() - memory.data_ptr()) % ALIGNMENT == 0
    assert [view.unique().tolist() for view in views] == [[False], [1.0], [2]]
    assert [view.shape for view in views] == [t.shape for t in tensors]
