from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsqueue.contracts.errors import FingerprintMismatch, RunDamaged
from hsqueue.contracts.fingerprint import Fingerprint, RunInfo
from tests.support.volume import make_fingerprint

FINGERPRINT = make_fingerprint(4)
INFO = RunInfo("r1", 1.5e9, 10, 3, 900, FINGERPRINT)
TABLE = json.loads(INFO.to_json())
OTHER: dict[str, object] = {
    "weights": "f" * 16, "layers": (1, 2, 3), "norm": "pre", "dtype": "float16", "hidden_size": 16,
    "vocab_size": 7, "tokenizer": "t2", "chat_template": "c2", "dataset": "d2", "max_length": 1,
    "min_loss_tokens": 5, "shard_size": 5, "ids": "line", "layer_convention": "output", "contract": 2,
}  # fmt: skip


def other(name: str) -> Fingerprint:
    return replace(FINGERPRINT, **{name: OTHER[name]})  # type: ignore[arg-type]


def test_every_field_but_the_path_of_the_model_is_compared() -> None:
    assert OTHER.keys() | {"model"} == {field.name for field in fields(Fingerprint)}


@pytest.mark.parametrize("name", sorted(OTHER))
def test_a_field_that_differs_is_named_with_both_values(name: str) -> None:
    assert FINGERPRINT.differences(other(name)) == {name: (getattr(FINGERPRINT, name), OTHER[name])}


def test_nodes_may_mount_the_model_at_different_places() -> None:
    elsewhere = replace(FINGERPRINT, model="/mnt/elsewhere/tiny")
    assert FINGERPRINT.differences(elsewhere) == {}
    FINGERPRINT.require(elsewhere, "run")


def test_the_error_names_the_run_and_every_field_that_differs() -> None:
    changed = replace(FINGERPRINT, norm="pre", dataset="d2")
    with pytest.raises(FingerprintMismatch) as caught:
        FINGERPRINT.require(changed, "/volume/run7")
    line = str(caught.value)
    assert "/volume/run7" in line
    assert "norm: the run has post, this is pre" in line
    assert "dataset: the run has d1, this is d2" in line
    assert "dtype" not in line
    assert "\n" not in line


def test_run_json_comes_back_as_it_was_written() -> None:
    assert RunInfo.from_json(INFO.to_json(), "run.json") == INFO
    assert RunInfo.from_json(INFO.to_json().encode(), "run.json") == INFO


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b"null", b"7", b"\xff", b"{", b"[" * 100_000])
def test_what_is_no_run_is_damaged_and_names_the_file(text: bytes) -> None:
    with pytest.raises(RunDamaged, match=r"RUN/run\.json"):
        RunInfo.from_json(text, "RUN/run.json")


@given(st.integers(0, len(INFO.to_json()) - 1))
def test_a_file_cut_short_is_damaged(length: int) -> None:
    with pytest.raises(RunDamaged):
        RunInfo.from_json(INFO.to_json()[:length], "run.json")


@pytest.mark.parametrize("name", sorted(TABLE))
def test_a_file_without_a_field_is_damaged(name: str) -> None:
    with pytest.raises(RunDamaged):
        RunInfo.from_json(json.dumps({k: v for k, v in TABLE.items() if k != name}), "run.json")


@pytest.mark.parametrize("name", sorted(OTHER.keys() - {"layer_convention", "contract"}))
def test_a_fingerprint_without_a_field_is_damaged(name: str) -> None:
    found = {k: v for k, v in TABLE["fingerprint"].items() if k != name}
    with pytest.raises(RunDamaged):
        RunInfo.from_json(json.dumps({**TABLE, "fingerprint": found}), "run.json")


@pytest.mark.parametrize("run", ["", "R", "a/b", "../x", "r" * 33, "-r", "r\n", None, 7, ["r"]])
def test_an_impossible_run_id_is_damage(run: object) -> None:
    with pytest.raises(RunDamaged):
        RunInfo.from_json(json.dumps({**TABLE, "run": run}), "run.json")


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_a_run_of_another_contract_version_is_refused(version: object) -> None:
    found = {**TABLE["fingerprint"], "contract": version}
    with pytest.raises(RunDamaged, match="version"):
        RunInfo.from_json(json.dumps({**TABLE, "fingerprint": found}), "run.json")


@pytest.mark.parametrize("name", ["samples", "shards", "tokens"])
def test_a_total_that_is_no_count_is_damage(name: str) -> None:
    for value in (None, "10", -1, 1.5, True):
        with pytest.raises(RunDamaged):
            RunInfo.from_json(json.dumps({**TABLE, name: value}), "run.json")


def test_a_shard_size_that_is_none_is_damage() -> None:
    for size in (0, -1, "4", None, 2.0):
        found = {**TABLE["fingerprint"], "shard_size": size}
        with pytest.raises(RunDamaged):
            RunInfo.from_json(json.dumps({**TABLE, "fingerprint": found}), "run.json")


@pytest.mark.parametrize("shards", [0, 2, 4])
def test_shards_that_do_not_hold_the_samples_are_damage(shards: int) -> None:
    with pytest.raises(RunDamaged):
        RunInfo.from_json(json.dumps({**TABLE, "shards": shards}), "run.json")


@given(st.integers(1, 500), st.integers(1, 40))
def test_shards_share_the_samples_out_without_gap_or_overlap(samples: int, size: int) -> None:
    shards = -(-samples // size)
    info = RunInfo("r1", 0.0, samples, shards, 0, make_fingerprint(size))
    ranges = [info.shard_range(shard) for shard in range(shards)]
    assert [index for found in ranges for index in found] == list(range(samples))
    assert all(1 <= len(found) <= size for found in ranges)


@pytest.mark.parametrize("shard", [-1, 3, 1 << 40])
def test_there_is_no_shard_outside_the_run(shard: int) -> None:
    with pytest.raises(IndexError):
        INFO.shard_range(shard)
