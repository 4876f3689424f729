"""A worker that stops at a step of a sample's way until it is let go: ``python -m tests.chaos.gated GATE worker …``.

GATE is a directory. While its file ``step`` names a step, the first thread of all workers to come there leaves its
process id in ``reached`` and waits until ``step`` is gone. The product knows nothing of this: functions are wrapped
before the worker forks.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.waiting import await_true

BEFORE_SEND = "before the request is sent"
ANSWERED = "after the response"
HALF_COPIED = "half-way through the copy"
LINKED = "between link and ledger"
RECORDED = "between ledger and manifest"
WRITTEN = "between manifest and its record"
FINISHED = "between ledger and acknowledgement"
STEPS = (BEFORE_SEND, ANSWERED, HALF_COPIED, LINKED, RECORDED, WRITTEN, FINISHED)

PAUSE = 0.01
LONGEST = 600.0
"""Seconds; the test that closed the gate fails long before."""
PROBE = "hsq.probe."
"""Rids of a worker that starts; no sample's."""


class Gate:
    """The test's side, and the worker's."""

    def __init__(self, directory: Path) -> None:
        self.step, self.reached = directory / "step", directory / "reached"

    def close(self, step: str) -> None:
        self.reached.unlink(missing_ok=True)
        new = self.step.with_suffix(".new")
        new.write_text(step)
        new.rename(self.step)

    def open(self) -> None:
        self.step.unlink(missing_ok=True)

    def held(self) -> int | None:
        """The process that stands at the gate, if any has come."""
        try:
            return int(self.reached.read_text())
        except (FileNotFoundError, ValueError):
            return None

    def here(self, step: str) -> None:
        """Called by whoever comes to `step`."""
        if not self._names(step):
            return
        try:
            with self.reached.open("x") as file:
                file.write(str(os.getpid()))
        except FileExistsError:
            return
        await_true(lambda: not self._names(step), "nobody opens the gate", LONGEST, PAUSE)

    def _names(self, step: str) -> bool:
        try:
            return self.step.read_text() == step
        except FileNotFoundError:
            return False


def install(gate: Gate) -> None:
    """Wraps what a worker calls at each step."""
    import hsqueue.store.publish as publishing
    import hsworker.shard as shards
    from hsqueue.ledger.ledger import Ledger
    from hsworker.engine import EngineClient

    prefill = EngineClient.prefill

    def asked(client: EngineClient, rid: str, input_ids: list[int]) -> Any:
        if rid.startswith(PROBE):
            return prefill(client, rid, input_ids)
        gate.here(BEFORE_SEND)
        answer = prefill(client, rid, input_ids)
        gate.here(ANSWERED)
        return answer

    EngineClient.prefill = asked  # type: ignore[method-assign]
    _wrap(publishing, "commit_link", gate, after=LINKED)
    _wrap(shards, "write_manifest", gate, before=RECORDED, after=WRITTEN)
    _wrap(Ledger, "finish", gate, after=FINISHED)
    write = publishing._write_all

    def halves(target: int, data: memoryview) -> None:
        middle = len(data) // 2
        with data[:middle] as first, data[middle:] as rest:
            write(target, first)
            gate.here(HALF_COPIED)
            write(target, rest)

    publishing._write_all = halves


def _wrap(owner: Any, name: str, gate: Gate, before: str = "", after: str = "") -> None:
    original: Callable[..., Any] = getattr(owner, name)

    @functools.wraps(original)
    def gated(*args: Any, **kwargs: Any) -> Any:
        gate.here(before)
        found = original(*args, **kwargs)
        gate.here(after)
        return found

    setattr(owner, name, gated)


if __name__ == "__main__":
    install(Gate(Path(sys.argv.pop(1))))
    from hsqueue.cli.main import main

    main()
