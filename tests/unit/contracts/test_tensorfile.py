from __future__ import annotations

import json
import struct
from math import prod
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load, load_file, save, save_file

from hsqueue.contracts.errors import DumpMalformed
from hsqueue.contracts.tensorfile import (
    HEADER_LIMIT,
    ITEM_BYTES,
    LENGTH_BYTES,
    TensorFile,
    build_header,
    header_length,
    layout,
    parse_header,
)

TORCH = {"I64": torch.int64, "BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "U8": torch.uint8}
SHAPES = st.lists(st.integers(0, 5), min_size=1, max_size=3).map(tuple)
TABLES = st.dictionaries(
    st.text(min_size=1, max_size=12).filter(lambda name: name != "__metadata__" and name.isprintable()),
    st.tuples(st.sampled_from(sorted(TORCH)), SHAPES),
    min_size=1,
    max_size=4,
)
METADATA = st.dictionaries(st.text(max_size=8), st.text(max_size=20), max_size=3)


def zeros(dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.zeros(shape, dtype=TORCH[dtype])


@given(TABLES, METADATA)
def test_a_built_header_is_parsed_as_it_was_meant(
    table: dict[str, tuple[str, tuple[int, ...]]], metadata: dict[str, str]
) -> None:
    specs = layout((name, dtype, shape) for name, (dtype, shape) in table.items())
    header = build_header(specs, metadata)
    found = parse_header(header)
    assert found.tensors == {spec.name: spec for spec in specs}
    assert found.metadata == metadata
    assert found.size == len(header)
    assert found.file_bytes == len(header) + sum(prod(shape) * ITEM_BYTES[d] for d, shape in table.values())


@given(TABLES, METADATA)
def test_the_payload_starts_at_a_multiple_of_eight(
    table: dict[str, tuple[str, tuple[int, ...]]], metadata: dict[str, str]
) -> None:
    assert len(build_header(layout((n, d, s) for n, (d, s) in table.items()), metadata)) % 8 == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TABLES, METADATA)
def test_safetensors_reads_what_is_built(
    tmp_path: Path, table: dict[str, tuple[str, tuple[int, ...]]], metadata: dict[str, str]
) -> None:
    specs = layout((name, dtype, shape) for name, (dtype, shape) in table.items())
    path = tmp_path / "built.safetensors"
    path.write_bytes(build_header(specs, metadata) + bytes(specs[-1].end))
    found = load_file(path)
    assert {name: (t.dtype, tuple(t.shape)) for name, t in found.items()} == {
        name: (TORCH[dtype], shape) for name, (dtype, shape) in table.items()
    }
    with safe_open(path, "pt") as file:
        assert (file.metadata() or {}) == metadata


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TABLES, METADATA)
def test_what_safetensors_writes_is_parsed(
    tmp_path: Path, table: dict[str, tuple[str, tuple[int, ...]]], metadata: dict[str, str]
) -> None:
    path = tmp_path / "saved.safetensors"
    save_file({name: zeros(dtype, shape) for name, (dtype, shape) in table.items()}, path, metadata)
    found = parse_header(path.read_bytes())
    assert {name: (t.dtype, t.shape) for name, t in found.tensors.items()} == table
    assert found.metadata == metadata
    assert found.file_bytes == path.stat().st_size


def test_a_tensor_lies_where_the_header_says() -> None:
    tensors = {"a": torch.arange(6).reshape(2, 3), "b": torch.randn(4, 2).bfloat16()}
    data = save(tensors)
    found = parse_header(data)
    for name, spec in found.tensors.items():
        stored = data[found.size + spec.begin : found.size + spec.end]
        assert stored == bytes(tensors[name].contiguous().view(torch.uint8).numpy().data)


# --- damage ---------------------------------------------------------------------------------------------


def parse_or_none(data: bytes) -> TensorFile | None:
    """None where `data` is refused as it should be; every other error is a failure of the test."""
    try:
        return parse_header(data)
    except DumpMalformed:
        return None


def assert_layout_fits(found: TensorFile) -> None:
    position = 0
    for spec in sorted(found.tensors.values(), key=lambda t: (t.begin, t.end)):
        assert spec.begin == position
        assert spec.end - spec.begin == prod(spec.shape) * ITEM_BYTES[spec.dtype]
        assert all(type(n) is int and n >= 0 for n in (*spec.shape, spec.begin, spec.end))
        position = spec.end
    assert found.file_bytes == found.size + position


def framed(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_or_fit(data: bytes) -> None:
    found = parse_or_none(data)
    if found is not None:
        assert_layout_fits(found)


@given(st.binary(max_size=200))
def test_a_header_of_random_bytes_is_refused_or_fits(text: bytes) -> None:
    found = parse_or_none(framed(text))
    if found is not None:
        assert_layout_fits(found)


GENUINE = build_header(layout([("a", "I64", (3,)), ("b", "BF16", (3, 4)), ("c", "F32", ())]), {"rid": "hsq.r.1.2.3"})


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, len(GENUINE) - 1), st.integers(0, 255)), min_size=1, max_size=3))
def test_changed_bytes_are_refused_or_fit(changes: list[tuple[int, int]]) -> None:
    data = bytearray(GENUINE)
    for place, value in changes:
        data[place] = value
    found = parse_or_none(bytes(data))
    if found is not None:
        assert_layout_fits(found)


@pytest.mark.parametrize("length", range(len(GENUINE)))
def test_a_header_cut_short_is_refused(length: int) -> None:
    with pytest.raises(DumpMalformed):
        parse_header(GENUINE[:length])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["I64", "BF16", "F32", "i64", ""]) | JSON,
        "shape": st.lists(st.integers(-2, 4) | JSON, max_size=3) | JSON,
        "data_offsets": st.lists(st.integers(-8, 40) | JSON, max_size=3) | JSON,
    },
)


@settings(max_examples=200)
@given(st.dictionaries(st.sampled_from(["a", "b", "__metadata__"]), ENTRIES | JSON, max_size=3))
def test_a_table_of_any_values_is_refused_or_fits(table: dict[str, object]) -> None:
    found = parse_or_none(framed(json.dumps(table).encode()))
    if found is not None:
        assert_layout_fits(found)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"[]", "not a JSON object"),
        (b"{]", "not JSON"),
        (b'{"a":1}', "not described"),
        (b'{"__metadata__":{"a":1}}', "metadata"),
        (b'{"__metadata__":[]}', "metadata"),
        (b'{"a":{"dtype":"F4","shape":[1],"data_offsets":[0,1]}}', "unknown dtype"),
        (b'{"a":{"dtype":["U8"],"shape":[1],"data_offsets":[0,1]}}', "unknown dtype"),
        (b'{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}}', "impossible shape"),
        (b'{"a":{"dtype":"U8","shape":[true],"data_offsets":[0,1]}}', "impossible shape"),
        (b'{"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}}', "impossible shape"),
        (b'{"a":{"dtype":"U8","shape":1,"data_offsets":[0,1]}}', "impossible shape"),
        (b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}}', "impossible offsets"),
        (b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[-1,0]}}', "impossible offsets"),
        (b'{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}}', "does not fill"),
        (b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}}', "does not fill"),
        (b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}', "hole or overlap"),
        (
            b'{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}',
            "hole or overlap",
        ),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_the_error_says_what_is_wrong(text: bytes, problem: str) -> None:
    with pytest.raises(DumpMalformed, match=problem):
        parse_header(framed(text))


@pytest.mark.parametrize("shape", [[10**4000, 10**4000], [1 << 62] * 300, [1 << 62] * 300 + [0]])
def test_a_shape_too_large_to_print_is_refused_like_any_other(shape: list[int]) -> None:
    table = {"a": {"dtype": "U8", "shape": shape, "data_offsets": [0, 1]}}
    with pytest.raises(DumpMalformed, match=r"shape|does not fill"):
        parse_header(framed(json.dumps(table).encode()))


@pytest.mark.parametrize("length", [0, 1, HEADER_LIMIT + 1, 1 << 63, (1 << 64) - 1])
def test_an_impossible_header_length_is_refused_before_anything_is_read(length: int) -> None:
    with pytest.raises(DumpMalformed, match="impossible header length"):
        header_length(struct.pack("<Q", length))


def test_a_prefix_of_fewer_than_eight_bytes_is_refused() -> None:
    with pytest.raises(DumpMalformed, match="too short"):
        header_length(bytes(LENGTH_BYTES - 1))


def test_bytes_behind_the_header_do_not_matter() -> None:
    assert parse_header(GENUINE + b"payload") == parse_header(GENUINE)


def test_safetensors_and_the_parser_agree_on_a_hole() -> None:
    data = framed(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}') + bytes(2)
    with pytest.raises(Exception, match=r"(?i)offset|header|invalid"):
        load(data)
    with pytest.raises(DumpMalformed):
        parse_header(data)
