from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from hscapture.legacy import CounterLayout, Form, next_counter
from tests.unit.capture.states import make_dump, make_states


def read(directory: Path, form: Form) -> dict[str, Any]:
    if form is Form.PT:
        return dict(torch.load(directory / "hidden_states.pt"))
    if form is Form.PT_FILES:
        return {path.stem: torch.load(path) for path in directory.glob("*.pt")}
    return dict(load_file(directory / "hidden_states.safetensors"))


@pytest.mark.parametrize("form", list(Form))
def test_every_form_holds_the_same_states(tmp_path: Path, form: Form) -> None:
    CounterLayout(tmp_path, form).write(make_dump("whatever/..", [1, 2], [3]))
    found = read(tmp_path / "req_0", form)
    whole = make_states([1, 2, 3])
    assert set(found) == {"aux_hidden_states", "last_hidden_state"}
    assert torch.equal(found["aux_hidden_states"], whole.aux)
    assert whole.last is not None
    assert torch.equal(found["last_hidden_state"], whole.last)
    assert json.loads((tmp_path / "req_0" / "meta.json").read_text()) == {"num_tokens": 3}


@pytest.mark.parametrize("form", list(Form))
def test_a_restarted_counter_overwrites_what_lies_there(tmp_path: Path, form: Form) -> None:
    CounterLayout(tmp_path, form).write(make_dump("a", [1, 2, 3]))
    CounterLayout(tmp_path, form).write(make_dump("b", [9]))
    assert read(tmp_path / "req_0", form)["aux_hidden_states"].shape[0] == 1


def test_the_counter_counts_every_dump(tmp_path: Path) -> None:
    layout = CounterLayout(tmp_path, start=7)
    for rid in ("a", "HEALTH_CHECK_1", "b"):
        layout.write(make_dump(rid, [1]))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["req_7", "req_8", "req_9"]
    assert next_counter(tmp_path) == 10


def test_the_next_number_overlooks_other_names(tmp_path: Path) -> None:
    assert next_counter(tmp_path) == 0
    for name in ("req_hsq.r.1.2.0", "req_3", "other"):
        (tmp_path / name).mkdir()
    assert next_counter(tmp_path) == 4
