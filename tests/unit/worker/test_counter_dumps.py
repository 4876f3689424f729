"""Dumps of the older layout, as scripts leave them: in three forms, half written, stale, under names used before."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from hscapture.legacy import Form, write_states
from hsqueue.contracts.errors import DumpAmbiguous, DumpMismatch, DumpMissing
from hsqueue.contracts.rid import RequestId
from hsqueue.contracts.sample import Sample
from hsworker import counter_dumps
from hsworker.counter_dumps import CounterDumps, _scan
from hsworker.dumps import Dump
from hsworker.matching import check_dump
from tests.support.fakeengine import CARD
from tests.support.volume import TARGET, make_sample

TOKENS = 7
SAMPLE = make_sample(3, TOKENS)
LAYERS, HIDDEN = len(TARGET.layers), TARGET.hidden_size
Make = Callable[[], CounterDumps]


def rid(attempt: int) -> RequestId:
    return RequestId("r1", 3, 1 << 32, attempt)


def states(seed: int, tokens: int = TOKENS) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"aux_hidden_states": (tokens, LAYERS * HIDDEN), "last_hidden_state": (tokens, HIDDEN)}
    return {name: torch.randn(shape, generator=generator).bfloat16() for name, shape in shapes.items()}


def write_meta(directory: Path, tokens: int = TOKENS) -> None:
    (directory / "meta.json").write_text(json.dumps({"num_tokens": tokens}))


def write(root: Path, number: int, seed: int, tokens: int = TOKENS, form: Form = Form.PT) -> Path:
    """A whole dump, states first."""
    directory = root / f"req_{number}"
    directory.mkdir(parents=True, exist_ok=True)
    write_states(directory, states(seed, tokens), form)
    write_meta(directory, tokens)
    return directory


@pytest.fixture(autouse=True)
def _always_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call looks at the directory, however soon after the last look."""
    monkeypatch.setattr("hsworker.counter_dumps.POLL", 0.0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "dumps"
    made.mkdir()
    return made


@pytest.fixture
def make(root: Path) -> Make:
    return lambda: CounterDumps(root, CARD, root / ".hsqueue", settle=0.0, patience=5.0)


def take(dumps: CounterDumps, attempt: int, timeout: float = 10.0) -> Dump:
    return dumps.wait(rid(attempt), SAMPLE, timeout)


def assert_holds(found: Dump, seed: int) -> None:
    stored = load_file(found.path)
    assert stored.pop("input_ids").tolist() == SAMPLE.input_ids.tolist()
    assert stored.keys() == states(seed).keys()
    assert all(torch.equal(stored[name], tensor) for name, tensor in states(seed).items())


# --- the three forms ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", list(Form))
def test_a_whole_dump_becomes_one_of_the_contract(root: Path, make: Make, form: Form) -> None:
    dumps = make()
    dumps.announce(rid(0), SAMPLE)
    source = write(root, 0, seed=1, form=form)
    found = take(dumps, 0)
    assert_holds(found, 1)
    check_dump(found.meta, found.file, found.ids, str(rid(0)), SAMPLE, TARGET)
    assert not source.exists()
    dumps.forget(rid(0), orphaned=False)
    assert not found.directory.exists()


def test_older_names_and_shapes_are_understood(root: Path, make: Make) -> None:
    """Layers in a list, a batch of one, other keys."""
    dumps = make()
    dumps.announce(rid(0), SAMPLE)
    made = states(1)
    layers = [part.unsqueeze(0) for part in made["aux_hidden_states"].split(HIDDEN, dim=-1)]
    (root / "req_0").mkdir()
    torch.save({"aux": layers, "hidden_states": made["last_hidden_state"].unsqueeze(0)}, root / "req_0" / "data.pt")
    write_meta(root / "req_0")
    assert_holds(take(dumps, 0), 1)


def test_states_that_are_not_finite_are_noted(root: Path, make: Make) -> None:
    dumps = make()
    dumps.announce(rid(0), SAMPLE)
    made = states(1)
    made["last_hidden_state"][3, 2] = float("nan")
    (root / "req_0").mkdir()
    write_states(root / "req_0", made, Form.PT_FILES)
    write_meta(root / "req_0")
    assert take(dumps, 0).meta.nonfinite == ("last_hidden_state",)


@pytest.mark.parametrize("change", [lambda t: t[:-1], lambda t: t.float(), lambda t: t[:, :-1]])
def test_tensors_of_another_type_or_shape_are_a_mismatch(root: Path, make: Make, change: Callable[[Any], Any]) -> None:
    dumps = make()
    dumps.announce(rid(0), SAMPLE)
    made = states(1)
    made["last_hidden_state"] = change(made["last_hidden_state"])
    (root / "req_0").mkdir()
    write_states(root / "req_0", made, Form.PT)
    write_meta(root / "req_0")
    with pytest.raises(DumpMismatch, match="last_hidden_state"):
        take(dumps, 0)


class Trap:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_a_pickle_is_never_run(root: Path, make: Make, tmp_path: Path) -> None:
    dumps = make()
    dumps.announce(rid(0), SAMPLE)
    (root / "req_0").mkdir()
    (root / "req_0" / "hidden_states.pt").write_bytes(pickle.dumps(Trap(tmp_path / "sprung"), protocol=2))
    write_meta(root / "req_0")
    with pytest.raises(DumpMissing, match="not whole"):
        take(dumps, 0, 0.1)
    assert not (tmp_path / "sprung").exists()


# --- half written ---------------------------------------------------------------------------------------------


def halves(directory: Path, form: Form) -> Iterator[str]:
    """Every state in which a reader can meet a dump that is written in place, the last one before it is whole."""
    directory.mkdir()
    yield "an empty directory"
    (directory / "meta.json").write_text('{"num_tok')
    yield "half a meta.json"
    write_meta(directory)
    yield "meta.json alone"
    write_states(directory, states(1), form)
    whole = {path: path.read_bytes() for path in directory.iterdir() if path.suffix != ".json"}
    for path, data in whole.items():
        for size in (0, 1, len(data) // 2, len(data) - 1):
            path.write_bytes(data[:size])
            yield f"{path.name} of {size} bytes"
        path.unlink()
        yield f"no {path.name}"
        path.write_bytes(data)


@pytest.mark.parametrize("form", list(Form))
def test_a_half_written_dump_is_never_taken_and_a_whole_one_always(root: Path, make: Make, form: Form) -> None:
    dumps = make()
    dumps.announce(rid(0), SAMPLE)
    steps = 0
    for step in halves(root / "req_0", form):
        with pytest.raises(DumpMissing, match="no complete dump"):
            print("taken with", step, take(dumps, 0, 0.0))
        steps += 1
    assert steps >= 8
    assert_holds(take(dumps, 0), 1)


def test_a_dump_that_is_written_while_it_is_read_is_read_again(
    root: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    dumps = make()
    dumps.announce(rid(0), SAMPLE)
    source = write(root, 0, seed=2)
    load, loads = counter_dumps._load, iter([True])

    def load_and_overwrite(directory: Path) -> dict[str, Any]:
        found = load(directory)
        if next(loads, False):
            write_states(source, states(1), Form.PT)
        return found

    monkeypatch.setattr(counter_dumps, "_load", load_and_overwrite)
    assert_holds(take(dumps, 0), 1)


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "{}", '{"num_tokens": "7"}', '{"num_tokens": true}', "\x00"])
def test_a_meta_file_that_is_none_is_passed_over(root: Path, make: Make, text: str) -> None:
    dumps = make()
    dumps.announce(rid(0), SAMPLE)
    write(root, 0, seed=2)
    (root / "req_0" / "meta.json").write_text(text)
    write(root, 1, seed=1)
    assert_holds(take(dumps, 0), 1)


def test_a_meta_file_written_between_two_looks_is_one_dump(root: Path) -> None:
    """A reader may see its old time and its new content; the same dump must not be counted twice."""
    path = root / "req_0" / "meta.json"
    path.parent.mkdir()
    path.write_text("")
    os.utime(path, ns=(10**18, 10**18))
    armed = True

    def write_while_it_is_opened(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal armed
        if event == "open" and armed and str(arguments[0]) == str(path):
            armed = False
            write_meta(path.parent)

    sys.addaudithook(write_while_it_is_opened)
    seen = set()
    for _ in range(3):
        seen |= {identity for identity, _ in _scan(root)}
    assert not armed
    assert len(seen) == 1


# --- which dump -----------------------------------------------------------------------------------------------


def test_dumps_from_before_are_nobodys(root: Path, make: Make) -> None:
    stale = write(root, 0, seed=9)
    dumps = make()
    dumps.announce(rid(0), SAMPLE)
    with pytest.raises(DumpMissing):
        take(dumps, 0, 0.1)
    write(root, 1, seed=1)
    assert_holds(take(dumps, 0), 1)
    assert stale.exists()


def test_a_restarted_engine_that_counts_from_zero_again_is_followed(root: Path, make: Make) -> None:
    dumps = make()
    for attempt in range(3):
        dumps.announce(rid(attempt), SAMPLE)
        write(root, 0, seed=attempt)
        assert_holds(take(dumps, attempt), attempt)
        dumps.forget(rid(attempt), orphaned=False)


def test_a_restarted_engine_that_overwrites_stale_dumps_is_followed(root: Path, make: Make) -> None:
    write(root, 0, seed=9)
    dumps = make()
    dumps.announce(rid(0), SAMPLE)
    write(root, 0, seed=1)
    assert_holds(take(dumps, 0), 1)


def test_health_checks_and_other_lengths_are_left_where_they_are(root: Path, make: Make) -> None:
    dumps = make()
    dumps.announce(rid(0), SAMPLE)
    others = [write(root, 0, seed=5, tokens=1), write(root, 1, seed=6, tokens=TOKENS + 1)]
    write(root, 2, seed=1)
    assert_holds(take(dumps, 0), 1)
    assert all(path.exists() for path in others)


def test_two_dumps_of_the_length_are_ambiguous_and_none_is_taken(root: Path, make: Make) -> None:
    dumps = make()
    dumps.announce(rid(0), SAMPLE)
    write(root, 0, seed=1)
    write(root, 1, seed=2)
    with pytest.raises(DumpAmbiguous, match="2 dumps of 7 tokens"):
        take(dumps, 0)
    assert sorted(path.name for path in root.iterdir() if path.name != ".hsqueue") == ["req_0", "req_1"]


def test_a_prompt_of_one_token_is_ambiguous(make: Make) -> None:
    with pytest.raises(DumpAmbiguous, match="health checks"):
        make().announce(rid(0), Sample(0, "x", SAMPLE.input_ids[:1], b"\1"))


def test_a_second_request_of_the_length_waits_for_the_first(root: Path, make: Make) -> None:
    dumps = make()
    dumps.announce(rid(0), SAMPLE)
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(dumps.announce, rid(1), SAMPLE)
        with pytest.raises(TimeoutError):
            second.result(0.1)
        write(root, 0, seed=1)
        assert_holds(take(dumps, 0), 1)
        dumps.forget(rid(0), orphaned=False)
        second.result(10)
    write(root, 1, seed=2)
    assert_holds(take(dumps, 1), 2)


def test_a_dump_that_went_away_is_missing(root: Path, make: Make) -> None:
    dumps = make()
    dumps.announce(rid(0), SAMPLE)
    (root / "req_0").mkdir()
    write_meta(root / "req_0")
    with pytest.raises(DumpMissing, match="no aux_hidden_states yet"):
        take(dumps, 0, 0.0)
    shutil.rmtree(root / "req_0")
    with pytest.raises(DumpMissing, match="went away"):
        take(dumps, 0, 0.1)
