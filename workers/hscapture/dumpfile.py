"""A dump as the buffers of one file: a header and the states' own memory, in the order of the contract."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import torch

from hscapture.assemble import Dump
from hscapture.finite import nonfinite
from hsqueue.contracts.card import EngineCard
from hsqueue.contracts.dump import AUX, INPUT_IDS, LAST, LAST_PRENORM, DumpMeta, expected_tensors
from hsqueue.contracts.errors import DumpMalformed
from hsqueue.contracts.tensorfile import TensorSpec, build_header, layout

IOV_MAX = 1024
"""Buffers that one ``writev`` takes on Linux."""


def dump_meta(dump: Dump, card: EngineCard) -> DumpMeta:
    """The dump's metadata. The states must be ready: their finite flags are read."""
    return DumpMeta(
        rid=dump.rid,
        num_tokens=dump.tokens,
        prefix_len=dump.prefix_len,
        chunks=dump.chunks,
        layers=card.layers,
        layers_asked=card.layers_asked,
        layers_held=card.layers_held,
        norm=card.norm,
        dtype=card.dtype,
        nonfinite=nonfinite([piece.states.finite for piece in dump.pieces], card.layers, card.norm),
        model=card.model,
        server=card.server,
        engine=card.instance,
    )


def tensors_of(dump: Dump, name: str) -> list[torch.Tensor]:
    """The pieces of one of the contract's tensors. Raises DumpMalformed where a pass did not capture it."""
    attribute = {INPUT_IDS: "input_ids", AUX: "aux", LAST: "last", LAST_PRENORM: "prenorm"}[name]
    pieces = [getattr(piece.states, attribute) for piece in dump.pieces]
    if any(piece is None for piece in pieces):
        raise DumpMalformed(f"tensor {name!r} was not captured", sample=dump.rid)
    return pieces


def file_buffers(dump: Dump, card: EngineCard) -> list[memoryview]:
    """The whole file as memory that already exists; only the header is built.

    Raises DumpMalformed where the states are not of the shape or dtype that the card promises.
    """
    specs = layout(expected_tensors(dump.tokens, len(card.layers), card.hidden_size, card.norm, card.dtype))
    buffers = [memoryview(build_header(specs, dump_meta(dump, card).to_metadata()))]
    for spec in specs:
        pieces = tensors_of(dump, spec.name)
        _require(spec, pieces, card, dump.rid)
        buffers.extend(memory(piece) for piece in pieces if piece.numel())
    return buffers


def _require(spec: TensorSpec, pieces: Sequence[torch.Tensor], card: EngineCard, rid: str) -> None:
    dtype = torch.int64 if spec.name == INPUT_IDS else getattr(torch, card.dtype)
    for piece in pieces:
        if piece.dtype != dtype or tuple(piece.shape[1:]) != spec.shape[1:]:
            raise DumpMalformed(
                f"tensor {spec.name!r} is not what the engine's card says",
                expected=f"{dtype} [.., {', '.join(map(str, spec.shape[1:]))}]",
                found=f"{piece.dtype} {list(piece.shape)}",
                sample=rid,
            )


def memory(tensor: torch.Tensor) -> memoryview:
    """The bytes of a CPU tensor, without a copy where it is contiguous. Valid while the tensor lives."""
    # The buffer protocol knows no bfloat16, so every tensor is shown as bytes.
    return tensor.detach().contiguous().view(torch.uint8).numpy().data.cast("B")


def write_all(descriptor: int, buffers: Sequence[memoryview]) -> None:
    """Writes all buffers one behind the other. Raises OSError where the volume does not take them."""
    for batch in _batches(buffers):
        while batch:
            written = os.writev(descriptor, batch)
            batch = _rest(batch, written)


def _batches(buffers: Sequence[memoryview]) -> Iterator[list[memoryview]]:
    for start in range(0, len(buffers), IOV_MAX):
        yield list(buffers[start : start + IOV_MAX])


def _rest(buffers: list[memoryview], written: int) -> list[memoryview]:
    """What of `buffers` lies beyond the first `written` bytes."""
    for position, buffer in enumerate(buffers):
        if written < len(buffer):
            return [buffer[written:], *buffers[position + 1 :]]
        written -= len(buffer)
    return []
