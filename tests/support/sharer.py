"""A process that shares an engine's budget and does as it is told."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from hsworker.budget import Budget, Share
from hsworker.turns import Limits

PATIENCE = 30.0


def serve(path: Path, limits: Limits, orders: Connection) -> None:
    share = Budget(path, limits).open()
    orders.send("ready")
    while True:
        try:
            name, arguments, options = orders.recv()
        except EOFError:
            return
        if name == "storm":
            orders.send("storming")
            storm(share, *arguments)
        else:
            orders.send(getattr(share, name)(*arguments, **options))


def storm(share: Share, seed: int, largest: int) -> None:
    """Takes and gives back at random, until it is killed."""
    rng = random.Random(seed)
    unanswered: list[int] = []
    unread: list[int] = []
    while True:
        size = rng.randrange(1, largest)
        if rng.random() < 0.6 and share.take(1, size, alone=rng.random() < 0.1):
            unanswered.append(size)
        elif unanswered and rng.random() < 0.5:
            share.answered(1)
            unread.append(unanswered.pop())
        elif unread:
            share.taken(unread.pop())


class Sharer:
    """Calls of its methods happen in the process, with the names of ``Share``'s."""

    def __init__(self, path: Path, limits: Limits) -> None:
        context = multiprocessing.get_context("spawn")
        self._orders, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(path, limits, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def wait_until_ready(self) -> None:
        assert self._answer() == "ready"

    def _answer(self) -> Any:
        assert self._orders.poll(PATIENCE), "the process does not answer"
        return self._orders.recv()

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: object, **options: object) -> Any:
            self._orders.send((name, arguments, options))
            return self._answer()

        return call

    def kill(self) -> None:
        self.process.kill()
        self.process.join()


@contextmanager
def sharers(count: int, path: Path, limits: Limits) -> Iterator[list[Sharer]]:
    """Processes that have each opened their share, the first one first."""
    started: list[Sharer] = []
    try:
        for _ in range(count):
            one = Sharer(path, limits)
            started.append(one)
            one.wait_until_ready()
        yield started
    finally:
        for one in started:
            one.kill()
