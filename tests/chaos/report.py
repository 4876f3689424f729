"""What was done to a run and what came of it, for machines and for people."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tests.chaos.mixer import Record


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a run stands at its end. retried: failed samples that ``hsqueue retry`` was told to ask for again, by
    error. twice: published more than once. replaced: files that changed. left: temporary files and dumps.
    asked: requests that the engines received, as far as the last life of each remembers. seconds: of the run.
    """

    seed: int
    total: int
    done: int
    retried: Mapping[str, int]
    wrong: Sequence[str]
    twice: Sequence[str]
    replaced: Sequence[str]
    left: Sequence[str]
    epochs: int
    seconds: float

    @property
    def is_right(self) -> bool:
        return self.done == self.total and not (self.wrong or self.twice or self.replaced or self.left)


def to_json(verdict: Verdict, records: Sequence[Record]) -> str:
    faults: list[dict[str, Any]] = [
        {**asdict(r.planned), "published": r.at, "hit": r.hit, "in_flight": r.in_flight, "back": r.back}
        for r in records
    ]
    return json.dumps({**asdict(verdict), "faults": faults}, indent=1)


def to_markdown(verdict: Verdict, records: Sequence[Record]) -> str:
    """A line for each kind of fault, then the result."""
    lines = [
        "| fault | times | requests in flight | next sample there after its end, median and most |",
        "|---|---|---|---|",
    ]
    for kind in sorted({r.planned.kind for r in records}):
        these = [r for r in records if r.planned.kind == kind and r.hit]
        backs = [r.back for r in these if r.back is not None]
        back = f"{statistics.median(backs):.1f} s, {max(backs):.1f} s" if backs else "-"
        lines.append(f"| {kind} | {len(these)} | {sum(r.in_flight for r in these)} | {back} |")
    hit = [r for r in records if r.hit]
    flying = sum(r.in_flight for r in hit)
    lines.append(f"| all, {len({r.planned.kind for r in hit})} kinds | {len(hit)} | {flying} | |")
    retried = ", ".join(f"{count} {error}" for error, count in sorted(verdict.retried.items())) or "0"
    lines += [
        "", f"seed {verdict.seed}: {verdict.done} of {verdict.total} done in {verdict.seconds:.0f} s",
        "", "| check | found |", "|---|---|",
        f"| files unlike the reference forward | {len(verdict.wrong)} |",
        f"| samples published twice | {len(verdict.twice)} |",
        f"| files that changed or went after they were published | {len(verdict.replaced)} |",
        f"| temporary files and dumps left | {len(verdict.left)} |",
        f"| ledgers (the first, and rebuilt ones) | {verdict.epochs} |",
        f"| failed samples that `hsqueue retry --failed` asked for again | {retried} |",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"
