"""Host memory that is used again: pinning a buffer for every forward pass would cost more than the copy."""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch

LEAST_BYTES = 1 << 20
MOST_WASTE = 4
"""A free buffer is taken for anything that fills at least this fraction of it, one over this."""


class Buffer:
    """memory: uint8, one-dimensional. Returned to its pool by the last of its users."""

    def __init__(self, pool: BufferPool, memory: torch.Tensor) -> None:
        self.memory = memory
        self._pool, self._users, self._lock = pool, 1, threading.Lock()

    def share(self, users: int) -> None:
        """From now on `users` calls of ``release`` are needed."""
        with self._lock:
            self._users = users

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            last = self._users == 0
        if last:
            self._pool.give_back(self.memory)


class BufferPool:
    """Buffers of a power of two bytes.

    allocate: makes one of so many bytes. keep_bytes: free buffers kept for later, together; what exceeds it is
    let go. How much is in use is bounded by those who hold it: the assembler and the writer.
    """

    def __init__(self, allocate: Callable[[int], torch.Tensor], keep_bytes: int) -> None:
        self._allocate, self._keep_bytes = allocate, keep_bytes
        self._free: list[torch.Tensor] = []
        self._lock = threading.Lock()

    def acquire(self, nbytes: int) -> Buffer:
        """A buffer of at least `nbytes` bytes."""
        size = max(LEAST_BYTES, 1 << (nbytes - 1).bit_length())
        with self._lock:
            fitting = [k for k, memory in enumerate(self._free) if size <= memory.nbytes <= MOST_WASTE * size]
            if fitting:
                return Buffer(self, self._free.pop(min(fitting, key=lambda k: self._free[k].nbytes)))
        return Buffer(self, self._allocate(size))

    def give_back(self, memory: torch.Tensor) -> None:
        with self._lock:
            # The newest stays: sizes follow the traffic, and what no longer fits it would be kept for ever.
            self._free.append(memory)
            while self.free_bytes > self._keep_bytes:
                self._free.pop(0)

    @property
    def free_bytes(self) -> int:
        return sum(memory.nbytes for memory in self._free)


def host_memory(pinned: bool) -> Callable[[int], torch.Tensor]:
    """What allocates a pool's buffers. pinned: for copies from a GPU that do not hold up the host."""
    return lambda nbytes: torch.empty(nbytes, dtype=torch.uint8, pin_memory=pinned)
