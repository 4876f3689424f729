"""What travels through Celery: the name of a shard, and nothing that could be stale or secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hsqueue.contracts.errors import UsageError
from hsqueue.contracts.rid import RUN_ID

TASK_NAME = "hsqueue.extract"


@dataclass(frozen=True, slots=True)
class ShardMessage:
    """run: the run's id. shard: from 0. n: samples in the shard, for people who read the queue."""

    run: str
    shard: int
    n: int

    def to_kwargs(self) -> dict[str, str | int]:
        return {"run": self.run, "shard": self.shard, "n": self.n}

    @classmethod
    def from_kwargs(cls, kwargs: Mapping[str, object]) -> ShardMessage:
        """Raises UsageError where a message is not one of ours; messages are foreign input."""
        run, shard, n = kwargs.get("run"), kwargs.get("shard"), kwargs.get("n", 0)
        if not isinstance(run, str) or not RUN_ID.fullmatch(run):
            raise UsageError("a message names an impossible run", found=repr(run)[:60])
        for value in (shard, n):
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 40:
                raise UsageError("a message names an impossible shard", found=repr(value)[:60])
        assert isinstance(shard, int)
        assert isinstance(n, int)
        return cls(run, shard, n)


def task_id(run: str, shard: int, attempt: int) -> str:
    """Celery's task id: ``<run>.<shard>.a<attempt>``, the same for every producer that sends the same."""
    return f"{run}.{shard}.a{attempt}"
