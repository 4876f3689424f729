"""Dumps of the older layout may be pickles; nothing in them is run."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from hsqueue.contracts.errors import DumpMalformed
from hsworker.counter_dumps import _load, _scan


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("zipped", [True, False])
def test_code_in_a_dump_is_not_run(tmp_path: Path, zipped: bool) -> None:
    dump, mark = tmp_path / "req_1", tmp_path / "it-ran"
    dump.mkdir()
    states = {"aux_hidden_states": Bomb(mark), "last_hidden_state": torch.zeros(2, 8)}
    torch.save(states, dump / "hidden_states.pt", _use_new_zipfile_serialization=zipped)
    with pytest.raises(DumpMalformed):
        _load(dump)
    assert not mark.exists()


def test_a_bare_pickle_is_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "it-ran"
    (tmp_path / "hidden_states.pt").write_bytes(pickle.dumps(Bomb(mark)))
    with pytest.raises(DumpMalformed):
        _load(tmp_path)
    assert not mark.exists()


@pytest.mark.parametrize("text", ["[" * 100_000, '{"num_tokens": true}', '{"num_tokens": -1}', "3", '{"num_tokens": 1'])
def test_a_meta_file_that_is_none_is_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "req_7").mkdir()
    (tmp_path / "req_7" / "meta.json").write_text(text)
    assert _scan(tmp_path) == []
