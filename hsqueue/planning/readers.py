"""Records out of one file, one at a time, however large the file is."""

from __future__ import annotations

import codecs
import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from hsqueue.contracts.errors import UsageError
from hsqueue.planning.records import KEYS
from hsqueue.planning.rejects import Reason, Reject
from hsqueue.planning.sources import Kind, SourceFile

RECORD_LIMIT = 16 << 20
"""Bytes of one record's JSON; a longer one is far beyond any context and is not read into memory."""
CHUNK = 1 << 20
ROWS = 128
"""Rows of a columnar file made into Python objects at a time."""
_DECODER = json.JSONDecoder()

Record = dict[str, object]


@dataclass(frozen=True, slots=True)
class Row:
    """line: from 1; in columnar files and JSON arrays, the row."""

    file: str
    line: int
    record: Record | Reject


def read_rows(file: SourceFile) -> Iterator[Row]:
    """Streams the file. A line that is no record comes as a Reject; blank lines do not come at all.

    Raises UsageError where the file as such is damaged, since what follows the damage would be lost unseen.
    """
    read = {Kind.JSONL: _jsonl, Kind.JSON: _json, Kind.PARQUET: _parquet, Kind.ARROW: _arrow}[file.kind]
    try:
        for line, record in read(file.path):
            yield Row(file.name, line, record)
    except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
        raise UsageError(
            f"{file.name} cannot be read ({str(error)[:200]})", do="Repair the file, or leave it out."
        ) from None


# --- JSON ----------------------------------------------------------------------------------------------


def _open(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.name.lower().endswith(".gz") else path.open("rb")  # type: ignore[return-value]


def _jsonl(path: Path) -> Iterator[tuple[int, Record | Reject]]:
    with _open(path) as stream:
        yield from _json_lines(stream)


def _json(path: Path) -> Iterator[tuple[int, Record | Reject]]:
    with _open(path) as stream:
        head = stream.read(CHUNK).removeprefix(codecs.BOM_UTF8).lstrip()
        stream.seek(0)
        yield from _json_array(stream, path) if head.startswith(b"[") else _json_lines(stream)


def _json_lines(stream: IO[bytes]) -> Iterator[tuple[int, Record | Reject]]:
    number = 0
    while line := stream.readline(RECORD_LIMIT + 1):
        number += 1
        if len(line) > RECORD_LIMIT:
            while line and not line.endswith(b"\n"):
                line = stream.readline(CHUNK)
            yield number, Reject(Reason.LINE_TOO_LONG, f"more than {RECORD_LIMIT} bytes")
        elif not line.isspace():
            yield number, _parse(line)


def _parse(line: bytes) -> Record | Reject:
    try:
        return _record(json.loads(line))
    except (ValueError, RecursionError) as error:
        return Reject(Reason.BAD_JSON, str(error)[:200])


def _record(value: object) -> Record | Reject:
    if isinstance(value, dict):
        return value
    return Reject(Reason.UNKNOWN_FORM, f"the record is a {type(value).__name__}; an object is needed")


def _json_array(stream: IO[bytes], path: Path) -> Iterator[tuple[int, Record | Reject]]:
    """Elements of one array, decoded out of a window that grows only while an element is incomplete."""
    window, number = _Window(stream, path), 0
    window.take("[")
    if window.peek() == "]":
        return
    while True:
        number += 1
        yield number, _record(window.element(number))
        if window.peek() == "]":
            return
        window.take(",")


class _Window:
    """The part of a JSON text that is in memory. Raises UsageError where the text is no JSON."""

    def __init__(self, stream: IO[bytes], path: Path) -> None:
        self._stream, self._path = stream, path
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._text, self._at, self._ended = "", 0, False

    def peek(self) -> str:
        """The next character that is no white space, "" at the end."""
        while True:
            while self._at < len(self._text):
                if not self._text[self._at].isspace():
                    return self._text[self._at]
                self._at += 1
            if not self._grow():
                return ""

    def take(self, wanted: str) -> None:
        found = self.peek()
        if found != wanted:
            raise self._damaged(f"expected {wanted!r}, found {found or 'the end of the file'!r}")
        self._at += 1

    def element(self, number: int) -> object:
        """The next element. One that ends with the window may go on behind it, so more is read first."""
        self.peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                if len(self._text) - self._at > RECORD_LIMIT or not self._grow():
                    raise self._damaged(f"element {number}: {str(error)[:100]}") from None
                continue
            if end < len(self._text) or not self._grow():
                self._at = end
                return value

    def _grow(self) -> bool:
        if self._ended:
            return False
        block = self._stream.read(CHUNK)
        self._ended = not block
        try:
            more = self._decode(block, final=self._ended)
        except UnicodeDecodeError as error:
            raise self._damaged(str(error)) from None
        self._text, self._at = self._text[self._at :] + more, 0
        return True

    def _damaged(self, problem: str) -> UsageError:
        return UsageError(
            f"{self._path} is no array of records ({problem})",
            do="Repair the file, or write it as JSONL, where one bad line costs only itself.",
        )


# --- Parquet and Arrow -----------------------------------------------------------------------------------


def _parquet(path: Path) -> Iterator[tuple[int, Record | Reject]]:
    with pq.ParquetFile(path, pre_buffer=False) as file:
        columns = _columns(file.schema_arrow.names, path)
        yield from _columnar(file.iter_batches(batch_size=ROWS, columns=columns))


def _arrow(path: Path) -> Iterator[tuple[int, Record | Reject]]:
    with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
        columns = _columns(stream.schema.names, path)
        yield from _columnar(batch.select(columns) for batch in stream)


def _columns(names: list[str], path: Path) -> list[str]:
    columns = [name for name in names if name in KEYS]
    if not columns:
        raise UsageError(
            f"{path} has no column that is read",
            expected="conversations, messages, text, prompt or input_ids",
            found=", ".join(names)[:200],
        )
    return columns


def _columnar(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, Record | Reject]]:
    number = 0
    for batch in batches:
        for start in range(0, batch.num_rows, ROWS):
            for record in batch.slice(start, ROWS).to_pylist():
                number += 1
                yield number, _without_nulls(record)


def _without_nulls(value: Any) -> Any:
    """Arrow gives every struct the keys of all rows; those that a row did not have come as null."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list) and value and isinstance(value[0], dict | list):
        return [_without_nulls(item) for item in value]
    return value
