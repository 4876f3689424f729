"""The safetensors container as bytes: its header parsed and built without reading or building a tensor.

Format (safetensors' documentation): an unsigned little-endian 64-bit header length, that many bytes of
JSON ``{name: {dtype, shape, data_offsets: [begin, end)}, "__metadata__": {str: str}}``, then the tensors'
bytes, contiguous and without holes. The header is padded with spaces to a multiple of 8 bytes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from hsqueue.contracts.errors import DumpMalformed

ITEM_BYTES: Mapping[str, int] = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "I16": 2, "F16": 2, "BF16": 2,
    "I32": 4, "F32": 4, "I64": 8, "F64": 8,
}  # fmt: skip
LENGTH_BYTES = 8
MOST_DIMENSIONS = 8
HEADER_LIMIT = 1 << 20
"""Bytes; a header of ours is a few kilobytes, so a larger one is damage and not read into memory."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Where one tensor lies. begin, end: byte offsets from the end of the header."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class TensorFile:
    """A parsed header. size: bytes of length prefix plus header, where the payload starts."""

    tensors: Mapping[str, TensorSpec]
    metadata: Mapping[str, str]
    size: int

    @property
    def payload_bytes(self) -> int:
        return max((t.end for t in self.tensors.values()), default=0)

    @property
    def file_bytes(self) -> int:
        """The only length that a complete file of this header can have."""
        return self.size + self.payload_bytes


def header_length(prefix: bytes) -> int:
    """Bytes of JSON that follow the 8-byte `prefix`. Raises DumpMalformed where that cannot be."""
    if len(prefix) < LENGTH_BYTES:
        raise DumpMalformed("file too short for a header", expected=f"{LENGTH_BYTES} bytes", found=len(prefix))
    length: int = struct.unpack("<Q", prefix[:LENGTH_BYTES])[0]
    if not 2 <= length <= HEADER_LIMIT:
        raise DumpMalformed("impossible header length", expected=f"2 to {HEADER_LIMIT} bytes", found=length)
    return length


def parse_header(data: bytes) -> TensorFile:
    """Parses the first ``8 + header_length`` bytes of a file; more may follow.

    Raises DumpMalformed for anything that is not a complete, gap-free, non-overlapping layout.
    """
    length = header_length(data)
    if len(data) < LENGTH_BYTES + length:
        raise DumpMalformed("header cut short", expected=f"{LENGTH_BYTES + length} bytes", found=len(data))
    try:
        table = json.loads(data[LENGTH_BYTES : LENGTH_BYTES + length])
    except (ValueError, RecursionError) as error:
        raise DumpMalformed(f"header is not JSON ({type(error).__name__})") from None
    if not isinstance(table, dict):
        raise DumpMalformed("header is not a JSON object", found=type(table).__name__)
    metadata = table.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise DumpMalformed("header metadata is not a map of strings")
    tensors = {name: _spec(name, entry) for name, entry in table.items()}
    _require_contiguous(tensors.values())
    return TensorFile(tensors, metadata, LENGTH_BYTES + length)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _spec(name: str, entry: Any) -> TensorSpec:
    if not isinstance(entry, dict):
        raise DumpMalformed(f"tensor {name!r} is not described by an object")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise DumpMalformed(f"tensor {name!r} has an unknown dtype", found=dtype)
    if not isinstance(shape, list) or len(shape) > MOST_DIMENSIONS or not all(map(_is_count, shape)):
        raise DumpMalformed(f"tensor {name!r} has an impossible shape", found=shape)
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_count, offsets)):
        raise DumpMalformed(f"tensor {name!r} has impossible offsets", found=offsets)
    begin, end = offsets
    if end - begin != prod(shape) * ITEM_BYTES[dtype]:
        raise DumpMalformed(
            f"tensor {name!r} does not fill its offsets",
            expected=prod(shape) * ITEM_BYTES[dtype],
            found=end - begin,
        )
    return TensorSpec(name, dtype, tuple(shape), begin, end)


def _require_contiguous(tensors: Iterable[TensorSpec]) -> None:
    position = 0
    for tensor in sorted(tensors, key=lambda t: (t.begin, t.end)):
        if tensor.begin != position:
            raise DumpMalformed(f"hole or overlap before tensor {tensor.name!r}", expected=position, found=tensor.begin)
        position = tensor.end


def layout(tensors: Iterable[tuple[str, str, tuple[int, ...]]]) -> tuple[TensorSpec, ...]:
    """Lays ``(name, dtype, shape)`` out one behind the other in the order given."""
    specs, position = [], 0
    for name, dtype, shape in tensors:
        end = position + prod(shape) * ITEM_BYTES[dtype]
        specs.append(TensorSpec(name, dtype, shape, position, end))
        position = end
    return tuple(specs)


def build_header(tensors: Iterable[TensorSpec], metadata: Mapping[str, str]) -> bytes:
    """Length prefix and padded JSON, ready to be followed by the payload."""
    table: dict[str, object] = {"__metadata__": dict(metadata)}
    for t in tensors:
        table[t.name] = {"dtype": t.dtype, "shape": list(t.shape), "data_offsets": [t.begin, t.end]}
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text
