"""The older layout, as scripts before the contract left it: counted directories, written in place.

``req_<counter>/`` holds the states and a ``meta.json`` whose only field of use is ``num_tokens``. Nothing
says which request a dump belongs to, every request of the server makes one, and a directory can be seen
before it is complete. The embedded engine writes it so that readers of it can be tested.
"""

from __future__ import annotations

import itertools
import json
import threading
from enum import StrEnum
from pathlib import Path

import torch

from hscapture.assemble import Dump
from hscapture.dumpfile import memory, tensors_of
from hscapture.ridlayout import make_dump_directory, write_file
from hsqueue.contracts.dump import AUX, LAST, LAST_PRENORM, SAFETENSORS_DTYPE
from hsqueue.contracts.tensorfile import build_header, layout

META_FILE = "meta.json"
PREFIX = "req_"


class Form(StrEnum):
    """How the states of one request are kept."""

    PT = "pt"
    """``hidden_states.pt``: a dictionary."""
    PT_FILES = "pt-files"
    """``aux_hidden_states.pt`` and ``last_hidden_state.pt``: a tensor each."""
    SAFETENSORS = "safetensors"
    """``hidden_states.safetensors``, without metadata."""


class CounterLayout:
    """Numbers dumps from `start` in the order in which they are written, whoever asked for them."""

    def __init__(self, directory: Path, form: Form = Form.PT, start: int = 0) -> None:
        self._directory, self._form = directory, form
        self._counter = itertools.count(start)
        self._lock = threading.Lock()
        make_dump_directory(directory)

    def write(self, dump: Dump) -> None:
        """Writes ``aux_hidden_states`` [S, A*H] and ``last_hidden_state`` [S, H]. Raises OSError."""
        with self._lock:
            target = self._directory / f"{PREFIX}{next(self._counter)}"
            target.mkdir(exist_ok=True)
        last = LAST if dump.pieces[0].states.last is not None else LAST_PRENORM
        states = {AUX: torch.cat(tensors_of(dump, AUX)), LAST: torch.cat(tensors_of(dump, last))}
        write_states(target, states, self._form)
        self.write_meta(target, dump)

    def write_meta(self, target: Path, dump: Dump) -> None:
        """Comes after the states, so a reader that waits for it meets whole files; not every script did."""
        (target / META_FILE).write_text(json.dumps({"num_tokens": dump.tokens}), encoding="utf-8")


def next_counter(directory: Path) -> int:
    """One more than the highest number in `directory`."""
    numbers = [path.name.removeprefix(PREFIX) for path in directory.glob(f"{PREFIX}*")]
    return max((int(number) for number in numbers if number.isdecimal()), default=-1) + 1


def write_states(target: Path, states: dict[str, torch.Tensor], form: Form) -> None:
    """The states of one dump, straight to their final names."""
    if form is Form.PT:
        torch.save(states, target / "hidden_states.pt")
    elif form is Form.PT_FILES:
        for name, tensor in states.items():
            torch.save(tensor, target / f"{name}.pt")
    else:
        path = target / "hidden_states.safetensors"
        path.unlink(missing_ok=True)
        write_file(path, safetensors_buffers(states))


def safetensors_buffers(states: dict[str, torch.Tensor]) -> list[memoryview]:
    codes = {getattr(torch, name): code for name, code in SAFETENSORS_DTYPE.items()}
    specs = layout((name, codes[t.dtype], tuple(t.shape)) for name, t in states.items())
    return [memoryview(build_header(specs, {})), *(memory(states[spec.name]) for spec in specs)]
