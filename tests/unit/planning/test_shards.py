"""A shard's file: the way there and back, and every kind of damage."""

from __future__ import annotations

import array
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsqueue.contracts.errors import RunDamaged
from hsqueue.contracts.sample import Sample
from hsqueue.planning.shards import SCHEMA, Origin, read_shard, write_shard


def sample(index: int, ids: list[int], mask: list[bool] | None = None) -> Sample:
    return Sample(index, f"né {index}", array.array("q", ids), bytes(mask or [bool(i % 2) for i in range(len(ids))]))


SAMPLES = [sample(7, [1, 2, 3]), sample(8, [2**31 - 1]), sample(9, [0, 5])]


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 2**31 - 1), st.booleans()), min_size=1, max_size=5), min_size=1, max_size=6
    ),
    st.integers(0, 10**12),
)
def test_there_and_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[tuple[int, bool]]], first: int
) -> None:
    samples = [sample(first + i, [t for t, _ in row], [m for _, m in row]) for i, row in enumerate(rows)]
    path = tmp_path_factory.mktemp("shard") / "s.parquet"
    write_shard(path, samples)
    found = read_shard(path, range(first, first + len(rows)))
    assert found == samples
    assert all(one.input_ids.typecode == "q" and type(one.loss_mask) is bytes for one in found)


def test_other_programs_find_the_documented_columns(tmp_path: Path) -> None:
    write_shard(tmp_path / "s.parquet", SAMPLES[:2], [Origin("a.jsonl", 4), Origin("a.jsonl", 6)])
    assert pq.read_schema(tmp_path / "s.parquet").equals(SCHEMA)
    assert pq.read_table(tmp_path / "s.parquet").to_pylist() == [
        {
            "index": 7,
            "id": "né 7",
            "input_ids": [1, 2, 3],
            "loss_mask": [False, True, False],
            "file": "a.jsonl",
            "line": 4,
        },
        {"index": 8, "id": "né 8", "input_ids": [2**31 - 1], "loss_mask": [False], "file": "a.jsonl", "line": 6},
    ]


def test_a_written_shard_is_never_overwritten(tmp_path: Path) -> None:
    write_shard(tmp_path / "s.parquet", SAMPLES)
    with pytest.raises(FileExistsError):
        write_shard(tmp_path / "s.parquet", SAMPLES[:1])


def test_a_token_id_beyond_32_bits_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(pa.ArrowInvalid):
        write_shard(tmp_path / "s.parquet", [sample(0, [2**31])])


def test_a_missing_shard(tmp_path: Path) -> None:
    with pytest.raises(RunDamaged, match=r"s\.parquet is missing.*Restore"):
        read_shard(tmp_path / "s.parquet")


@pytest.mark.parametrize("expected", [range(7, 9), range(7, 11), range(8, 11), range(0)])
def test_other_samples_than_expected(tmp_path: Path, expected: range) -> None:
    write_shard(tmp_path / "s.parquet", SAMPLES)
    with pytest.raises(RunDamaged, match="holds other samples"):
        read_shard(tmp_path / "s.parquet", expected)


@pytest.mark.parametrize("samples", [[], [SAMPLES[0], SAMPLES[2]], [SAMPLES[1], SAMPLES[0]], [SAMPLES[0]] * 2])
def test_indices_that_are_not_dense(tmp_path: Path, samples: list[Sample]) -> None:
    write_shard(tmp_path / "s.parquet", samples)
    with pytest.raises(RunDamaged, match="holds other samples"):
        read_shard(tmp_path / "s.parquet")


def test_no_flipped_bit_and_no_cut_goes_unnoticed(tmp_path: Path) -> None:
    path, damaged = tmp_path / "s.parquet", tmp_path / "d.parquet"
    samples = [sample(i, list(range(i, i + 40))) for i in range(20)]
    write_shard(path, samples)
    good = path.read_bytes()
    step = max(1, len(good) // 150)
    for at in range(0, len(good), step):
        for data in (good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :], good[:at]):
            damaged.write_bytes(data)
            try:
                found = read_shard(damaged)
            except RunDamaged:
                continue
            # What is not checked is what nobody reads: unused columns and remarks in the footer.
            assert found == samples


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("loss_mask", pa.array([[True]], SCHEMA.field("loss_mask").type)),
        ("input_ids", pa.array([["1"]])),
        ("input_ids", pa.array([None], SCHEMA.field("input_ids").type)),
        ("id", pa.array([None], pa.string())),
        ("id", pa.array([1])),
    ],
)
def test_columns_of_another_kind(tmp_path: Path, column: str, values: pa.Array) -> None:
    table = pa.table(
        {
            "index": pa.array([0]),
            "id": pa.array(["a"]),
            "input_ids": pa.array([[1, 2]], SCHEMA.field("input_ids").type),
            "loss_mask": pa.array([[True, True]], SCHEMA.field("loss_mask").type),
        }
    )
    pq.write_table(table.set_column(table.schema.names.index(column), column, values), tmp_path / "s.parquet")
    with pytest.raises(RunDamaged, match="cannot be read"):
        read_shard(tmp_path / "s.parquet")


def test_a_shard_of_another_program_without_a_column(tmp_path: Path) -> None:
    pq.write_table(pa.table({"index": [0]}), tmp_path / "s.parquet")
    with pytest.raises(RunDamaged, match="cannot be read"):
        read_shard(tmp_path / "s.parquet")
