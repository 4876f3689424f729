"""Dumps of the older layout, as scripts leave them: in three forms, and half written."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hscapture.legacy import Form, write_states
from hsqueue.contracts.errors import DumpMismatch, DumpMissing
from hsworker import counter_dumps
from hsworker.counter_dumps import CounterDumps, _scan
from hsworker.matching import check_dump
from tests.support.counter import SAMPLE, assert_holds, make_states, rid, take, write_counter_dump, write_meta
from tests.support.volume import TARGET

HIDDEN = TARGET.hidden_size
Make = Callable[[], CounterDumps]


# --- the three forms ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", list(Form))
def test_a_whole_dump_becomes_one_of_the_contract(root: Path, make: Make, form: Form) -> None:
    dumps = make()
    dumps.announce(rid(0), SAMPLE)
    source = write_counter_dump(root, 0, seed=1, form=form)
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
    made = make_states(1)
    layers = [part.unsqueeze(0) for part in made["aux_hidden_states"].split(HIDDEN, dim=-1)]
    (root / "req_0").mkdir()
    torch.save({"aux": layers, "hidden_states": made["last_hidden_state"].unsqueeze(0)}, root / "req_0" / "data.pt")
    write_meta(root / "req_0")
    assert_holds(take(dumps, 0), 1)


def test_states_that_are_not_finite_are_noted(root: Path, make: Make) -> None:
    dumps = make()
    dumps.announce(rid(0), SAMPLE)
    made = make_states(1)
    made["last_hidden_state"][3, 2] = float("nan")
    (root / "req_0").mkdir()
    write_states(root / "req_0", made, Form.PT_FILES)
    write_meta(root / "req_0")
    assert take(dumps, 0).meta.nonfinite == ("last_hidden_state",)


@pytest.mark.parametrize("change", [lambda t: t[:-1], lambda t: t.float(), lambda t: t[:, :-1]])
def test_tensors_of_another_type_or_shape_are_a_mismatch(root: Path, make: Make, change: Callable[[Any], Any]) -> None:
    dumps = make()
    dumps.announce(rid(0), SAMPLE)
    made = make_states(1)
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
    write_states(directory, make_states(1), form)
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
    source = write_counter_dump(root, 0, seed=2)
    load, loads = counter_dumps._load, iter([True])

    def load_and_overwrite(directory: Path) -> dict[str, Any]:
        found = load(directory)
        if next(loads, False):
            write_states(source, make_states(1), Form.PT)
        return found

    monkeypatch.setattr(counter_dumps, "_load", load_and_overwrite)
    assert_holds(take(dumps, 0), 1)


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "{}", '{"num_tokens": "7"}', '{"num_tokens": true}', "\x00"])
def test_a_meta_file_that_is_none_is_passed_over(root: Path, make: Make, text: str) -> None:
    dumps = make()
    dumps.announce(rid(0), SAMPLE)
    write_counter_dump(root, 0, seed=2)
    (root / "req_0" / "meta.json").write_text(text)
    write_counter_dump(root, 1, seed=1)
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
