"""Finding processes by what they are. All are asked for at the moment of the fault, since they come and go."""

from __future__ import annotations

import contextlib
import random
import subprocess
from collections.abc import Callable, Sequence

import psutil

Find = Callable[[], Sequence[psutil.Process]]
"""Whoever is there now; empty where nobody is."""


def main_of(current: Callable[[], subprocess.Popen[bytes] | None]) -> Find:
    """The process itself. current: what runs now, which a supervisor may have started again."""

    def find() -> list[psutil.Process]:
        process = current()
        return [psutil.Process(process.pid)] if process is not None and process.poll() is None else []

    return _or_nobody(find)


def children_of(parents: Find) -> Find:
    """What the processes have forked, such as a worker's children."""
    return _or_nobody(lambda: [child for parent in parents() for child in parent.children()])


def tree_of(parents: Find) -> Find:
    """The processes and all that they have forked."""
    return _or_nobody(lambda: [p for parent in parents() for p in (parent, *parent.children(recursive=True))])


def one_of(find: Find, dice: random.Random) -> Find:
    """One of those found."""

    def pick() -> list[psutil.Process]:
        found = find()
        return [dice.choice(found)] if found else []

    return pick


def descendants_with(process: subprocess.Popen[bytes], word: str) -> Find:
    """Descendants of `process` with `word` in their command line."""

    def find() -> list[psutil.Process]:
        found = []
        for member in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if any(word in part for part in member.cmdline()):
                    found.append(member)
        return found

    return _or_nobody(find)


def _or_nobody(find: Callable[[], list[psutil.Process]]) -> Find:
    """A process may end while it is looked at."""

    def safe() -> list[psutil.Process]:
        try:
            return find()
        except psutil.Error:
            return []

    return safe
