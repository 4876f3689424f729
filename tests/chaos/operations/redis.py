"""Redis: dead, back on its data, back empty, silent, emptied, or on a machine whose clock was set."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

from hsqueue.ledger.keys import RUNS, RunKeys
from tests.support.redis import RedisServer


@dataclass(frozen=True, slots=True)
class RedisDead:
    """kill -9; back on its data, which may lack the last second."""

    server: RedisServer

    def apply(self) -> str:
        self.server.kill()
        return "killed Redis"

    def undo(self) -> None:
        self.server.start()


@dataclass(frozen=True, slots=True)
class RedisBackEmpty:
    """kill -9, and its data are gone when it is back."""

    server: RedisServer

    def apply(self) -> str:
        self.server.kill()
        for path in self.server.directory.glob("appendonly*"):
            shutil.rmtree(path)
        for path in self.server.directory.glob("*.rdb"):
            path.unlink()
        return "killed Redis and removed its data"

    def undo(self) -> None:
        self.server.start()


@dataclass(frozen=True, slots=True)
class RedisFlushed:
    """FLUSHALL, at once."""

    server: RedisServer

    def apply(self) -> str:
        with self.server.client() as client:
            client.flushall()
        return "flushed Redis"

    def undo(self) -> None:
        return


@dataclass(frozen=True, slots=True)
class RedisFrozen:
    """It keeps its connections and answers nothing."""

    server: RedisServer

    def apply(self) -> str:
        self.server.freeze()
        return "froze Redis"

    def undo(self) -> None:
        self.server.thaw()


@dataclass(frozen=True, slots=True)
class RedisClockSet:
    """The clock of Redis' machine is set forward: all that waits for a time of it is due `seconds` earlier.

    The times that Redis keeps for hsqueue are moved instead of its clock, which comes to the same.
    """

    server: RedisServer
    seconds: float

    def apply(self) -> str:
        moved = 0
        with self.server.client() as client:
            for run in client.hkeys(RUNS):
                keys = RunKeys(run)
                for key in (keys.leases, keys.queued):
                    for member in client.zrange(key, 0, -1):
                        client.zincrby(key, -1000 * self.seconds, member)
                        moved += 1
        return f"{moved} times moved by {self.seconds:.0f} s"

    def undo(self) -> None:
        return
