"""A published sample: the dump's tensors, the loss mask, and a header that says whose states these are.

The payload is the dump's own bytes in the dump's order, followed by ``loss_mask`` (uint8 [S]). The header's
``checksum`` is xxh3-128 of the payload. A file's *digest* is xxh3-128 of its header, so one value of 32 hex
digits, kept in the manifest, covers every byte of the file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import xxhash

from hsqueue.contracts import CONTRACT_VERSION
from hsqueue.contracts.dump import INPUT_IDS, DumpMeta
from hsqueue.contracts.errors import DumpMalformed
from hsqueue.contracts.sample import Published
from hsqueue.contracts.tensorfile import (
    LENGTH_BYTES,
    TensorFile,
    TensorSpec,
    build_header,
    header_length,
    layout,
    parse_header,
)

LOSS_MASK = "loss_mask"
CHECKSUM_DIGITS = 32


@dataclass(frozen=True, slots=True)
class SampleHeader:
    """A published file's header, parsed. digest: of the whole file. file: where the tensors lie."""

    run: str
    index: int
    id: str
    tokens: int
    checksum: str
    digest: str
    file: TensorFile

    @property
    def published(self) -> Published:
        return Published(self.index, self.tokens, self.file.file_bytes, self.digest)


def sample_tensors(dump: TensorFile, tokens: int) -> tuple[TensorSpec, ...]:
    """The dump's tensors where they lie, then the loss mask."""
    ordered = sorted(dump.tensors.values(), key=lambda t: t.begin)
    return layout([*((t.name, t.dtype, t.shape) for t in ordered), (LOSS_MASK, "U8", (tokens,))])


def sample_metadata(run: str, index: int, user_id: str, meta: DumpMeta, checksum: str) -> dict[str, str]:
    """Metadata of a published file. checksum: 32 hex digits; any other value of that length gives a header
    of the same length, so the header's size is known before the payload is read."""
    layers = ",".join(map(str, meta.layers))
    return {
        "contract": str(CONTRACT_VERSION), "run": run, "index": str(index), "id": user_id,
        "num_tokens": str(meta.num_tokens), "layers": layers, "layer_convention": "input", "norm": meta.norm,
        "dtype": meta.dtype, "model": meta.model, "server": meta.server, "rid": meta.rid, "checksum": checksum,
    }  # fmt: skip


def sample_header(tensors: tuple[TensorSpec, ...], metadata: Mapping[str, str]) -> bytes:
    return build_header(tensors, metadata)


def digest_of(header: bytes) -> str:
    return xxhash.xxh3_128_hexdigest(header)


def parse_sample_header(data: bytes) -> SampleHeader:
    """Parses a published file's first bytes. Raises DumpMalformed, saying which part is not as published."""
    file = parse_header(data)
    metadata = file.metadata
    if metadata.get("contract") != str(CONTRACT_VERSION):
        raise DumpMalformed(
            "published file of another version", expected=CONTRACT_VERSION, found=metadata.get("contract")
        )
    try:
        index, tokens = int(metadata["index"]), int(metadata["num_tokens"])
        run, user_id, checksum = metadata["run"], metadata["id"], metadata["checksum"]
    except KeyError as error:
        raise DumpMalformed(f"published file lacks {error}") from None
    except ValueError:
        raise DumpMalformed("published file with an index or length that is no number") from None
    for name in (INPUT_IDS, LOSS_MASK):
        found = file.tensors.get(name)
        if found is None or found.shape != (tokens,):
            raise DumpMalformed(f"{name} of the wrong length", expected=tokens, found=found and found.shape)
    return SampleHeader(run, index, user_id, tokens, checksum, digest_of(data[: file.size]), file)


def read_sample_header(path: Path) -> SampleHeader:
    """Reads and checks the header and the length of the file at `path`, not its payload.

    Raises DumpMalformed where the file is not exactly as long as its header says, FileNotFoundError.
    """
    with path.open("rb") as file:
        prefix = file.read(LENGTH_BYTES)
        header = parse_sample_header(prefix + file.read(header_length(prefix)))
        size = os.fstat(file.fileno()).st_size
    if size != header.file.file_bytes:
        raise DumpMalformed("published file of the wrong length", expected=header.file.file_bytes, found=size)
    return header
