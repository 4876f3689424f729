"""Dumps of the older layout, which say nothing of the request that they belong to."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file

from hscapture.legacy import Form, write_states
from hsqueue.contracts.rid import RequestId
from hsworker.counter_dumps import CounterDumps
from hsworker.dumps import Dump
from tests.support.volume import TARGET, make_sample

TOKENS = 7
SAMPLE = make_sample(3, TOKENS)


def make_states(seed: int, tokens: int = TOKENS) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    width = {"aux_hidden_states": len(TARGET.layers) * TARGET.hidden_size, "last_hidden_state": TARGET.hidden_size}
    return {name: torch.randn((tokens, size), generator=generator).bfloat16() for name, size in width.items()}


def write_meta(directory: Path, tokens: int = TOKENS) -> None:
    (directory / "meta.json").write_text(json.dumps({"num_tokens": tokens}))


def write_counter_dump(root: Path, number: int, seed: int, tokens: int = TOKENS, form: Form = Form.PT) -> Path:
    """A whole dump, states first."""
    directory = root / f"req_{number}"
    directory.mkdir(parents=True, exist_ok=True)
    write_states(directory, make_states(seed, tokens), form)
    write_meta(directory, tokens)
    return directory


def rid(attempt: int) -> RequestId:
    """Of one attempt at SAMPLE."""
    return RequestId("r1", SAMPLE.index, 1 << 32, attempt)


def take(dumps: CounterDumps, attempt: int, timeout: float = 10.0) -> Dump:
    return dumps.wait(rid(attempt), SAMPLE, timeout)


def assert_holds(found: Dump, seed: int) -> None:
    """The states of `seed` and the token ids of SAMPLE, in the contract's form."""
    stored = load_file(found.path)
    assert stored.pop("input_ids").tolist() == SAMPLE.input_ids.tolist()
    assert stored.keys() == make_states(seed).keys()
    assert all(torch.equal(stored[name], tensor) for name, tensor in make_states(seed).items())
