"""Rows out of every kind of file, damaged ones included."""

from __future__ import annotations

import codecs
import gzip
import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsqueue.contracts.errors import UsageError
from hsqueue.planning import readers
from hsqueue.planning.readers import Row, read_rows
from hsqueue.planning.rejects import Reason, Reject
from hsqueue.planning.sources import Kind, SourceFile, find_files

RECORDS: list[dict[str, Any]] = [{"id": str(i), "text": f"né {i} ]}}, {{["} for i in range(5)]
LINES = b"".join(json.dumps(record).encode() + b"\n" for record in RECORDS)


def rows(path: Path) -> list[Row]:
    return [row for file in find_files([path]) for row in read_rows(file)]


def records(path: Path) -> list[Any]:
    return [row.record for row in rows(path)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", LINES),
        ("a.jsonl", LINES.rstrip(b"\n")),
        ("a.jsonl", LINES.replace(b"\n", b"\r\n")),
        ("a.jsonl", codecs.BOM_UTF8 + LINES),
        ("a.jsonl.gz", gzip.compress(LINES, mtime=0)),
        ("a.json", LINES),
        ("a.json", json.dumps(RECORDS).encode()),
        ("a.json", b"\n " + json.dumps(RECORDS, indent=2, ensure_ascii=False).encode() + b"\n"),
        ("a.json", codecs.BOM_UTF8 + json.dumps(RECORDS).encode()),
        ("a.json.gz", gzip.compress(json.dumps(RECORDS).encode(), mtime=0)),
    ],
)
def test_json_in_all_its_forms(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert records(tmp_path / name) == RECORDS


def test_rows_carry_their_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"id": 1}\n\n   \n{"id": 2}\n')
    assert rows(path) == [Row(str(path), 1, {"id": 1}), Row(str(path), 4, {"id": 2})]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", Reason.BAD_JSON),
        (b'{"id": "\xff"}', Reason.BAD_JSON),
        (b"[" * 100_000, Reason.BAD_JSON),
        (b"[1]", Reason.UNKNOWN_FORM),
        (b'"text"', Reason.UNKNOWN_FORM),
    ],
)
def test_a_bad_line_costs_only_itself(tmp_path: Path, line: bytes, reason: Reason) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"id": 1}\n' + line + b'\n{"id": 3}\n')
    first, bad, last = rows(path)
    assert (first.record, last.record, bad.line) == ({"id": 1}, {"id": 3}, 2)
    assert isinstance(bad.record, Reject)
    assert bad.record.reason is reason


@pytest.mark.parametrize("ending", [b"\n", b""])
def test_a_line_beyond_the_limit_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: bytes) -> None:
    monkeypatch.setattr(readers, "RECORD_LIMIT", 64)
    monkeypatch.setattr(readers, "CHUNK", 16)
    path, last = tmp_path / "a.jsonl", b'{"id": 3}\n' if ending else b""
    path.write_bytes(b'{"id": 1}\n{"id": "' + b"x" * 200 + b'"}' + ending + last)
    found = rows(path)
    assert [row.line for row in found] == ([1, 2, 3] if last else [1, 2])
    assert isinstance(found[1].record, Reject)
    assert found[1].record.reason is Reason.LINE_TOO_LONG


@pytest.mark.parametrize(
    "content",
    [
        b"[",
        b"[{}",
        b"[{},",
        b"[{},]",
        b"[{} {}]",
        b'[{"a": 1, }]',
        b'[{"a": "\xff"}]',
        b'[{"a": "' + b"x" * 200,
    ],
)
def test_a_damaged_array_stops_the_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(readers, "RECORD_LIMIT", 64)
    monkeypatch.setattr(readers, "CHUNK", 16)
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(UsageError, match=r"a\.json is no array of records.*JSONL"):
        rows(tmp_path / "a.json")


def test_arrays_may_be_empty_or_hold_what_is_no_record(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b" [ ] ")
    assert rows(path) == []
    path.write_bytes(b'[1, {"id": 2}]')
    one, two = rows(path)
    assert isinstance(one.record, Reject)
    assert two == Row(str(path), 2, {"id": 2})


@given(
    st.lists(st.dictionaries(st.text('a\\"é狐', max_size=3), st.integers() | st.floats(allow_nan=False), max_size=3)),
    st.integers(1, 9),
)
def test_an_array_reads_the_same_whatever_the_window(
    tmp_path_factory: pytest.TempPathFactory, elements: list[Any], chunk: int
) -> None:
    path = tmp_path_factory.mktemp("array") / "a.json"
    path.write_text(json.dumps(elements, ensure_ascii=False), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "CHUNK", chunk)
        found = [row.record for row in read_rows(SourceFile(path, Kind.JSON))]
    assert found == elements


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.json.gz"])
@pytest.mark.parametrize("damage", [lambda b: b[:-12], lambda b: b"not gzip", lambda b: b[:20] + b"\xff" * 20])
def test_damaged_gzip_is_named(tmp_path: Path, name: str, damage: Callable[[bytes], bytes]) -> None:
    (tmp_path / name).write_bytes(damage(gzip.compress(LINES, mtime=0)))
    with pytest.raises(UsageError, match="cannot be read"):
        rows(tmp_path / name)


TABLE = pa.table(
    {
        "id": [f"r{i}" for i in range(300)],
        "messages": [
            [{"role": "user", "content": f"q{i}", "tool_calls": None}, {"role": "assistant", "content": "a"}]
            for i in range(300)
        ],
        "loss_mask": pa.array([None] * 300, pa.list_(pa.int8())),
        "image": [b"\0" * 10] * 300,
    }
)


def expected_row(i: int) -> dict[str, Any]:
    return {"id": f"r{i}", "messages": [{"role": "user", "content": f"q{i}"}, {"role": "assistant", "content": "a"}]}


def test_parquet_reads_the_known_columns_without_nulls(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(TABLE, path, row_group_size=100)
    assert rows(path) == [Row(str(path), i + 1, expected_row(i)) for i in range(300)]


def test_token_ids_come_out_of_parquet_as_lists_of_integers(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"input_ids": [[1, 2], [3]], "loss_mask": [[True, False], [True]]}), path)
    assert records(path) == [
        {"input_ids": [1, 2], "loss_mask": [True, False]},
        {"input_ids": [3], "loss_mask": [True]},
    ]


def write_arrow(path: Path, table: pa.Table) -> None:
    with pa.ipc.new_stream(path, table.schema) as stream:
        stream.write_table(table, max_chunksize=170)


def test_arrow_streams(tmp_path: Path) -> None:
    write_arrow(tmp_path / "data.arrow", TABLE)
    (tmp_path / "dataset_info.json").write_text("{}", encoding="utf-8")
    assert records(tmp_path) == [expected_row(i) for i in range(300)]


def test_what_the_datasets_package_saves(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_list([expected_row(i) for i in range(30)]).save_to_disk(str(tmp_path / "set"), num_shards=3)
    assert records(tmp_path / "set") == [expected_row(i) for i in range(30)]


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_a_file_without_a_known_column_is_refused(tmp_path: Path, name: str) -> None:
    strange, kind = pa.table({"question": ["q"], "answers": ["a"]}), Kind(name[2:])
    if kind is Kind.PARQUET:
        pq.write_table(strange, tmp_path / name)
    else:
        write_arrow(tmp_path / name, strange)
    with pytest.raises(UsageError, match="found question, answers"):
        list(read_rows(SourceFile(tmp_path / name, kind)))


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_damaged_columnar_files_are_named(tmp_path: Path, name: str) -> None:
    path, kind = tmp_path / name, Kind(name[2:])
    if kind is Kind.PARQUET:
        pq.write_table(TABLE, path)
    else:
        write_arrow(path, TABLE)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(UsageError, match="cannot be read"):
        list(read_rows(SourceFile(path, kind)))


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_a_file_is_read_no_further_than_asked(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "CHUNK", 4096)
    path = tmp_path / name
    lines = [json.dumps(record).encode() for record in RECORDS * 20_000]
    path.write_bytes(b"[" + b",".join(lines) + b"]" if name == "a.json" else b"\n".join(lines))
    real, read = Path.open, []

    class Counting:
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        def __enter__(self) -> Counting:
            return self

        def __exit__(self, *_: object) -> None:
            self._stream.close()

        def seek(self, to: int) -> None:
            self._stream.seek(to)

        def read(self, n: int) -> Any:
            read.append(n)
            return self._stream.read(n)

        def readline(self, n: int) -> Any:
            line = self._stream.readline(n)
            read.append(len(line))
            return line

    monkeypatch.setattr(Path, "open", lambda self, mode: Counting(real(self, mode)))
    [file] = find_files([path])
    assert len(list(islice(read_rows(file), 100))) == 100
    assert sum(read) < 32_768 < path.stat().st_size
