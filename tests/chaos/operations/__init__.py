"""Faults as small operations on running processes, directories and connections: one concern a file.

Each does one thing to what it is given, and takes it back where there is a way back. None of them needs the others,
a cluster, or a switch in the product.
"""

from __future__ import annotations

from typing import Protocol


class Fault(Protocol):
    """What a scheduler or a test does to a running system."""

    def apply(self) -> str:
        """Returns what was hit, for people; empty where there was nothing to hit."""

    def undo(self) -> None:
        """Called once after ``apply``; does nothing where the fault has no way back."""
