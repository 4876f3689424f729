"""How a lease ended, for the task's result and for logs."""

from __future__ import annotations

from dataclasses import dataclass

from hsqueue.contracts.errors import HsqueueError


@dataclass(frozen=True, slots=True)
class Outcome:
    """ended: the shard has its manifest. stopped_by: why it has none, or what came after it. reasons: why samples
    failed, for people.
    """

    shard: int
    samples: int
    ended: bool
    done: int
    skipped: int
    failed: int
    stopped_by: HsqueueError | None
    reasons: str = ""

    def __str__(self) -> str:
        parts = [f"{self.done}/{self.samples} done"]
        parts += [f"{n} {name}" for n, name in ((self.skipped, "skipped"), (self.failed, "failed")) if n]
        word = "afterwards" if self.ended else "stopped"
        return ", ".join(parts) + (f"; {word}: {self.stopped_by}" if self.stopped_by else "")
