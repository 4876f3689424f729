"""States on their way from the device that computed them to host memory, without holding up either."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import torch

from hscapture.rows import States, nothing
from hscapture.sglang.pool import Buffer, BufferPool

ALIGNMENT = 256
"""Bytes; every tensor in a buffer starts at a multiple."""


@dataclass(frozen=True, slots=True, eq=False)
class Staged:
    """states: views into `buffer`, which may be read once `ready` has returned."""

    states: States
    buffer: Buffer
    ready: Callable[[], None]


class Stager:
    """Copies the states of one forward pass after another. On a GPU the copies run on a stream of their own, behind
    what was queued on the current stream; whoever reads them waits for an event. Elsewhere they are done at once.
    """

    def __init__(self, device: torch.device, pool: BufferPool) -> None:
        self._pool = pool
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def stage(self, states: States) -> Staged:
        """`states` may be changed or freed by its owner as soon as this returns."""
        sources = [t for t in fields_of(states) if t is not None]
        buffer = self._pool.acquire(packed_bytes(sources))
        targets = carve(buffer.memory, sources)
        if self._stream is None:
            for target, source in zip(targets, sources, strict=True):
                target.copy_(source)
            return Staged(with_fields(states, targets), buffer, nothing)
        return Staged(with_fields(states, targets), buffer, self._copy(self._stream, targets, sources))

    def _copy(
        self, stream: torch.cuda.Stream, targets: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]
    ) -> Callable[[], None]:
        stream.wait_stream(torch.cuda.current_stream(stream.device))
        with torch.cuda.stream(stream):
            for target, source in zip(targets, sources, strict=True):
                target.copy_(source, non_blocking=True)
                # The allocator would hand this memory out again while the copy still reads it.
                source.record_stream(stream)
            # A blocking event lets the writer threads sleep instead of spinning beside the scheduler.
            done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            done.record(stream)
        return done.synchronize


def fields_of(states: States) -> tuple[torch.Tensor | None, ...]:
    return (states.input_ids, states.aux, states.last, states.prenorm, states.finite)


def with_fields(states: States, tensors: Sequence[torch.Tensor]) -> States:
    """`tensors` in the places of those that `states` has."""
    rest = iter(tensors)
    input_ids, aux, last, prenorm, finite = (None if t is None else next(rest) for t in fields_of(states))
    assert input_ids is not None
    assert aux is not None
    assert finite is not None
    return States(input_ids, aux, last, prenorm, finite)


def packed_bytes(tensors: Sequence[torch.Tensor]) -> int:
    """Bytes of a buffer that holds all of `tensors`."""
    return sum(_padded(t.nbytes) for t in tensors)


def carve(memory: torch.Tensor, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Views into `memory`, uint8, of the dtypes and shapes of `tensors`."""
    views, offset = [], 0
    for tensor in tensors:
        piece = memory[offset : offset + prod(tensor.shape) * tensor.element_size()]
        views.append(piece.view(tensor.dtype).view(tensor.shape))
        offset += _padded(tensor.nbytes)
    return views


def _padded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
