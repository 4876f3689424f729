"""File systems that are full, or read-only. Only for small ones that a test has mounted for itself."""

from __future__ import annotations

import errno
import os
import subprocess
import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tests.support.waiting import comes_true

PIECE = 1 << 24
SMALLEST = 1 << 12
LARGEST_FREE = 16 << 30
PATIENCE = 20.0


@dataclass(slots=True)
class Fill:
    """Takes all that is free in the file system of `directory`, and what others free meanwhile. undo gives it back."""

    directory: Path
    filler: Path | None = None
    over: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None

    def apply(self) -> str:
        free = os.statvfs(self.directory)
        assert free.f_bavail * free.f_frsize < LARGEST_FREE, f"{self.directory} is no small file system of a test"
        self.filler = self.directory / f".filler-{uuid.uuid4().hex[:8]}"
        file = self.filler.open("xb")
        size = grow(file.fileno(), 0)
        self.thread = threading.Thread(target=self._stay_full, args=(file, size), daemon=True)
        self.thread.start()
        return f"{size >> 20} MiB taken"

    def _stay_full(self, file: IO[bytes], size: int) -> None:
        """Whoever is at work there removes as well as writes."""
        with file:
            while not self.over.wait(0.01):
                size = grow(file.fileno(), size)

    def undo(self) -> None:
        self.over.set()
        if self.thread is not None and self.filler is not None:
            self.thread.join()
            self.filler.unlink(missing_ok=True)


def grow(descriptor: int, size: int) -> int:
    """Allocates until nothing is left. Returns the new size."""
    piece = PIECE
    while piece >= SMALLEST:
        try:
            os.posix_fallocate(descriptor, size, piece)
            size += piece
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            piece //= 4
    return size


@dataclass(frozen=True, slots=True)
class ReadOnly:
    """Remounts a file system read-only, and back."""

    mounted: Path

    def apply(self) -> str:
        return f"{self.mounted.name} is read-only" if self._remount("ro") else ""

    def undo(self) -> None:
        assert self._remount("rw"), f"{self.mounted} stays read-only"

    def _remount(self, mode: str) -> bool:
        """The kernel refuses as long as a file is being written; tried until none is."""
        command = ["mount", "-o", f"remount,{mode}", self.mounted]
        return comes_true(
            lambda: subprocess.run(command, capture_output=True, check=False).returncode == 0, PATIENCE, pause=0.005
        )


@dataclass(frozen=True, slots=True)
class Gone:
    """Nothing is mounted at the place of a volume any more: there is an empty directory.

    prefix: of a command that runs where the volume is to go, such as on one node.
    """

    mounted: Path
    prefix: Sequence[str]

    def apply(self) -> str:
        self._run("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", self.mounted)
        return f"{self.mounted.name} is empty"

    def undo(self) -> None:
        self._run("umount", "--lazy", self.mounted)

    def _run(self, *command: str | Path) -> None:
        subprocess.run([*self.prefix, *command], check=True)
