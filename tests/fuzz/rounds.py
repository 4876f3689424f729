"""Feeds readers, and counts: a named error is a refusal, everything else but a right accept is a failure."""

from __future__ import annotations

import contextlib
import random
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hsqueue.contracts.errors import HsqueueError
from tests.fuzz import records, reports
from tests.fuzz.dumps import Dumps

TARGETS = {
    "dump": 8, "message": 4, "manifest": 3, "card": 1, "published file": 2, "run.json": 1, "rid": 2, "answer": 1,
    "ledger": 2, "report": 1,
}  # fmt: skip
"""Readers, and how many items of all each of them gets."""
SLOWEST = 2.0
"""Seconds of the processor that no single item may take."""
IN_MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Tally:
    """slowest: seconds of the processor that one item took at most."""

    name: str
    items: int
    refused: int
    accepted: int
    slowest: float
    seconds: float

    def row(self) -> str:
        return (
            f"| {self.name} | {self.items:,} | {self.refused:,} | {self.accepted:,} | {self.slowest * 1000:.0f} ms "
            f"| {self.seconds:.0f} |"
        )

    @classmethod
    def of_all(cls, tallies: Sequence[Tally]) -> Tally:
        return cls(
            "**all**", sum(t.items for t in tallies), sum(t.refused for t in tallies),
            sum(t.accepted for t in tallies), max(t.slowest for t in tallies), sum(t.seconds for t in tallies),
        )  # fmt: skip


def spread(items: int) -> dict[str, int]:
    """Reader -> how many of `items` it gets; together all of them."""
    counts = {name: items * share // sum(TARGETS.values()) for name, share in TARGETS.items()}
    counts["dump"] += items - sum(counts.values())
    return counts


def feed(name: str, items: int, seed: int) -> Tally:
    """Raises what a reader raised, with the seed of the one item that made it."""
    refused, slowest, began = 0, 0.0, time.monotonic()
    with reader(name) as one:
        for k in range(items):
            word = f"{name} {seed} {k}"
            start = time.process_time()
            try:
                one(random.Random(word))
            except (HsqueueError, records.Refused) as error:
                refused += 1
                if isinstance(error, HsqueueError):
                    require_sound(error)
            except BaseException as error:
                error.add_note(f"item {word!r}: one(random.Random({word!r})) of reader {name!r} makes it again")
                raise
            slowest = max(slowest, time.process_time() - start)
    assert slowest < SLOWEST, f"one item of {name} took {slowest:.1f} s"
    return Tally(name, items, refused, items - refused, slowest, time.monotonic() - began)


def require_sound(error: HsqueueError) -> None:
    """What came from outside is quoted in an error: on one line, of bounded length, without control characters."""
    line = str(error)
    assert line.isprintable(), repr(line[:500])
    assert len(line) < 4000, f"an error of {len(line)} characters: {line[:500]}"


@contextlib.contextmanager
def reader(name: str) -> Iterator[Callable[[random.Random], bool]]:
    """The function that makes one item of this kind and has it read."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as made:
        place = Path(made)
        plain: dict[str, Callable[[random.Random], bool]] = {
            "message": records.message, "manifest": records.manifest, "card": records.card, "rid": records.rid,
            "answer": records.response, "report": reports.report,
        }  # fmt: skip
        if name in plain:
            yield plain[name]
        elif name == "dump":
            yield Dumps(place).one
        elif name == "ledger":
            yield records.Replies().one
        else:
            files = records.Files(place)
            yield files.sample if name == "published file" else files.run


def memory_limit(more: int) -> None:
    """Lets this process take `more` bytes of address space than it has, so that a bomb is an error at once."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
