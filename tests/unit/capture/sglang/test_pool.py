from __future__ import annotations

import torch

from hscapture.sglang.pool import LEAST_BYTES, MOST_WASTE, BufferPool, host_memory


class Allocations:
    """Counts what a pool allocates. Memory is not touched, so large buffers cost nothing."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, nbytes: int) -> torch.Tensor:
        self.sizes.append(nbytes)
        return torch.empty(nbytes, dtype=torch.uint8)


def test_a_buffer_that_was_released_is_used_again() -> None:
    allocations = Allocations()
    pool = BufferPool(allocations, keep_bytes=8 * LEAST_BYTES)
    first = pool.acquire(10)
    address = first.memory.data_ptr()
    first.release()
    assert pool.acquire(LEAST_BYTES).memory.data_ptr() == address
    assert allocations.sizes == [LEAST_BYTES]


def test_buffers_in_use_are_nobody_elses() -> None:
    pool = BufferPool(Allocations(), keep_bytes=8 * LEAST_BYTES)
    held = [pool.acquire(1) for _ in range(3)]
    assert len({buffer.memory.data_ptr() for buffer in held}) == 3


def test_a_shared_buffer_comes_back_with_its_last_user() -> None:
    pool = BufferPool(Allocations(), keep_bytes=8 * LEAST_BYTES)
    buffer = pool.acquire(1)
    buffer.share(3)
    buffer.release()
    buffer.release()
    assert pool.free_bytes == 0
    buffer.release()
    assert pool.free_bytes == LEAST_BYTES


def test_what_is_kept_is_bounded_and_the_newest_stays() -> None:
    allocations = Allocations()
    pool = BufferPool(allocations, keep_bytes=4 * LEAST_BYTES)
    large, small = pool.acquire(4 * LEAST_BYTES), pool.acquire(1)
    large.release()
    small.release()
    assert pool.free_bytes == LEAST_BYTES
    pool.acquire(1)
    assert allocations.sizes == [4 * LEAST_BYTES, LEAST_BYTES]


def test_a_buffer_far_too_large_is_left_for_larger_passes() -> None:
    allocations = Allocations()
    pool = BufferPool(allocations, keep_bytes=64 * LEAST_BYTES)
    pool.acquire(2 * MOST_WASTE * LEAST_BYTES).release()
    pool.acquire(1)
    assert allocations.sizes == [2 * MOST_WASTE * LEAST_BYTES, LEAST_BYTES]


def test_sizes_are_powers_of_two_that_fit() -> None:
    pool = BufferPool(host_memory(pinned=False), keep_bytes=0)
    assert pool.acquire(3 * LEAST_BYTES).memory.nbytes == 4 * LEAST_BYTES
    assert pool.acquire(4 * LEAST_BYTES).memory.nbytes == 4 * LEAST_BYTES
