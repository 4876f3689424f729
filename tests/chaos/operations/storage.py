"""File systems that are full, or read-only. Only for small ones that a test has mounted for itself."""

from __future__ import annotations

import errno
import os
import subprocess
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

PIECE = 1 << 24
SMALLEST = 1 << 12
LARGEST_FREE = 16 << 30
PATIENCE = 20.0


@dataclass(slots=True)
class Fill:
    """Takes all that is free in the file system of `directory`. undo gives it back."""

    directory: Path
    filler: Path | None = field(default=None)

    def apply(self) -> str:
        free = os.statvfs(self.directory)
        assert free.f_bavail * free.f_frsize < LARGEST_FREE, f"{self.directory} is no small file system of a test"
        self.filler = self.directory / f".filler-{uuid.uuid4().hex[:8]}"
        with self.filler.open("xb") as file:
            size = grow(file.fileno(), 0)
            # Whoever is at work there removes as well as writes; what that frees is taken too.
            for _ in range(5):
                time.sleep(0.05)
                size = grow(file.fileno(), size)
        return f"{size >> 20} MiB taken"

    def undo(self) -> None:
        if self.filler is not None:
            self.filler.unlink(missing_ok=True)
            self.filler = None


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
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            done = subprocess.run(["mount", "-o", f"remount,{mode}", self.mounted], capture_output=True, check=False)
            if done.returncode == 0:
                return True
            time.sleep(0.005)
        return False


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
