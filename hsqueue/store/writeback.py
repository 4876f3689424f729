"""Has the kernel write a file to disk while it is still being copied, so that ``fsync`` has little to wait for."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

STRIDE = 4 << 20
"""Bytes that are written back at a time."""
SYNC_FILE_RANGE_WRITE = 2


def _find() -> Callable[[int, int, int, int], object] | None:
    """The C library's function; None on systems other than Linux."""
    try:
        function = ctypes.CDLL(None).sync_file_range
    except (AttributeError, OSError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return function


_sync_file_range = _find()


def begin_write_back(descriptor: int, offset: int, length: int) -> None:
    """Begins it for `length` bytes and waits for nothing. A hint: it may do nothing, and it raises nothing.

    An error of the disk is kept by the kernel for the file's ``fsync``, which is what makes it durable.
    """
    if _sync_file_range is not None:
        _sync_file_range(descriptor, offset, length, SYNC_FILE_RANGE_WRITE)


class WriteBack:
    """Follows a file that is written from its start to its end."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._written = self._begun = 0

    def wrote(self, length: int) -> None:
        """Called after each write, with its bytes."""
        self._written += length
        due = (self._written - self._begun) // STRIDE * STRIDE
        if due:
            begin_write_back(self._descriptor, self._begun, due)
            self._begun += due
