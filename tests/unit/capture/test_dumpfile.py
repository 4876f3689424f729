from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

from hscapture import dumpfile
from hscapture.assemble import Dump
from hscapture.dumpfile import file_buffers, memory, write_all
from hscapture.rows import Piece
from hsqueue.contracts.dump import DumpMeta, expected_tensors
from hsqueue.contracts.errors import DumpMalformed
from tests.unit.capture.states import HIDDEN, LAYERS, make_card, make_dump, make_states


@pytest.mark.parametrize("norm", ["post", "pre", "both"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_file_is_what_safetensors_and_the_contract_expect(tmp_path: Path, norm: str, dtype: str) -> None:
    dump = make_dump("hsq.r.1.2.0", [1, 2], [3], [4, 5, 6], norm=norm, dtype=getattr(torch, dtype))
    path = tmp_path / "f.safetensors"
    path.write_bytes(b"".join(file_buffers(dump, make_card(norm, dtype))))
    whole = make_states([1, 2, 3, 4, 5, 6], norm=norm, dtype=getattr(torch, dtype))
    with safe_open(path, "pt") as file:
        meta = DumpMeta.from_metadata(file.metadata())
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - safe_open is no mapping
    assert set(tensors) == {name for name, _, _ in expected_tensors(6, len(LAYERS), HIDDEN, norm, dtype)}
    assert torch.equal(tensors["input_ids"], whole.input_ids)
    assert torch.equal(tensors["aux_hidden_states"], whole.aux)
    for name, expected in (("last_hidden_state", whole.last), ("last_hidden_state_prenorm", whole.prenorm)):
        assert (name in tensors) == (expected is not None)
        assert expected is None or torch.equal(tensors[name], expected)
    assert meta == DumpMeta(
        rid="hsq.r.1.2.0", num_tokens=6, prefix_len=0, chunks=(2, 1, 3), layers=LAYERS, layers_asked=LAYERS,
        layers_held=LAYERS, norm=norm, dtype=dtype, nonfinite=(), model="models/tiny", server="hsengine 0", engine="i1",
    )  # fmt: skip


def test_states_are_not_copied() -> None:
    tensor = torch.arange(12, dtype=torch.bfloat16).view(3, 4)[1:]
    view = memory(tensor)
    tensor[0, 0] = 7
    assert view[:2] == torch.tensor([7], dtype=torch.bfloat16).view(torch.uint8).numpy().tobytes()
    assert len(view) == 16


def test_a_strided_tensor_is_written_in_its_own_order() -> None:
    tensor = torch.arange(6, dtype=torch.int64).view(2, 3).t()
    assert bytes(memory(tensor)) == tensor.contiguous().numpy().tobytes()


@pytest.mark.parametrize(
    ("dump", "complaint"),
    [
        (make_dump("a", [1, 2], dtype=torch.bfloat16), "float32"),
        (make_dump("a", [1, 2], norm="pre"), "'last_hidden_state' was not captured"),
        (
            Dump("a", 0, (Piece("a", 0, True, replace(make_states([1]), aux=torch.zeros(1, 5))),)),
            f"{HIDDEN * len(LAYERS)}",
        ),
    ],
)
def test_states_that_the_card_does_not_promise_are_refused(dump: Dump, complaint: str) -> None:
    with pytest.raises(DumpMalformed, match=complaint):
        file_buffers(dump, make_card())


@given(st.lists(st.binary(max_size=50), max_size=40), st.integers(1, 60), st.integers(1, 5))
def test_short_writes_and_many_buffers_lose_nothing(parts: list[bytes], most: int, at_a_time: int) -> None:
    """The system may take fewer bytes than offered, and takes only so many buffers at once."""

    def short_writev(descriptor: int, buffers: list[memoryview]) -> int:
        assert len(buffers) <= at_a_time
        return os.write(descriptor, b"".join(buffers)[:most])

    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryFile() as file:
        patch.setattr(os, "writev", short_writev)
        patch.setattr(dumpfile, "IOV_MAX", at_a_time)
        write_all(file.fileno(), [memoryview(part) for part in parts])
        file.seek(0)
        assert file.read() == b"".join(parts)
