"""What all manifests of a run say together. Built for hundreds of thousands of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from hsqueue.contracts.errors import RunDamaged, VolumeUnusable
from hsqueue.contracts.fingerprint import RunInfo
from hsqueue.contracts.meters import STAGES
from hsqueue.contracts.sample import Ending
from hsqueue.contracts.work import Span, Work
from hsqueue.store.layout import RunLayout
from hsqueue.store.manifest import read_table
from hsqueue.store.survey import survey_shard

READERS = 8
PARTS = 4 * READERS
"""Of a run, each read by one thread and then added: adding costs more than a shard does."""


MOST = 1 << 63
"""No count is as large."""


@dataclass(frozen=True, slots=True)
class Example:
    """One sample that ended without a file."""

    index: int
    detail: str


@dataclass(slots=True)
class Tally:
    """lengths, sizes: done samples by tokens, and by bytes of the file. given_up: samples by (ending, error), with the
    first of each as an example. seconds, retries, leases, lost, engine_downs: see Work. ended: shards with a manifest
    that holds. unsound: shards with one that does not. open: shards without one.
    """

    lengths: Counter[int] = field(default_factory=Counter)
    sizes: Counter[int] = field(default_factory=Counter)
    given_up: Counter[tuple[str, str]] = field(default_factory=Counter)
    examples: dict[tuple[str, str], Example] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    retries: Counter[str] = field(default_factory=Counter)
    leases: int = 0
    lost: int = 0
    engine_downs: int = 0
    spans: list[Span] = field(default_factory=list)
    ended: int = 0
    unsound: list[int] = field(default_factory=list)
    open: list[int] = field(default_factory=list)

    @property
    def done(self) -> int:
        return self.lengths.total()

    @property
    def tokens(self) -> int:
        return sum(length * samples for length, samples in self.lengths.items())

    @property
    def file_bytes(self) -> int:
        return sum(size * samples for size, samples in self.sizes.items())

    def count(self, ending: Ending) -> int:
        return sum(samples for (how, _), samples in self.given_up.items() if how == ending)

    def add(self, table: dict[str, Any], run: str, shard: int, samples: int) -> None:
        """One manifest, of `samples` samples. Raises ValueError, TypeError or KeyError where it does not hold; then
        nothing was added.
        """
        columns, rows, work = table["done"], table["given_up"], Work.from_table(table["work"])
        found = {len(columns[name]) for name in ("index", "tokens", "bytes", "digest")}
        if (table["run"], table["shard"]) != (run, shard) or found != {samples - len(rows)}:
            raise ValueError("it is another shard's")
        _require_counts(columns["tokens"])
        _require_counts(columns["bytes"])
        endings = [_ending(*row) for row in rows]
        self.lengths.update(columns["tokens"])
        self.sizes.update(columns["bytes"])
        for key, example in endings:
            self.given_up[key] += 1
            self.examples.setdefault(key, example)
        self._add_work(work)
        self.ended += 1

    def _add_work(self, work: Work) -> None:
        self.leases += work.leases
        self.lost += work.lost
        self.engine_downs += work.engine_downs
        for stage, seconds in work.seconds.items():
            self.seconds[stage] += seconds
        self.retries.update(work.retries)
        self.spans += work.spans

    def merge(self, other: Tally) -> None:
        """other: of later shards."""
        for name in ("lengths", "sizes", "given_up", "retries"):
            getattr(self, name).update(getattr(other, name))
        for name in ("leases", "lost", "engine_downs", "ended"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("spans", "unsound", "open"):
            getattr(self, name).extend(getattr(other, name))
        self.seconds = {stage: self.seconds[stage] + other.seconds[stage] for stage in STAGES}
        self.examples = other.examples | self.examples


def _require_counts(column: list[Any]) -> None:
    """Looked at as a whole: a loop over every sample of a run would take minutes."""
    if not set(map(type, column)) <= {int} or not 0 <= min(column, default=0) <= max(column, default=0) < MOST:
        raise ValueError("a length that is none")


def _ending(index: Any, ending: Any, attempts: Any, error: Any, detail: Any) -> tuple[tuple[str, str], Example]:
    if (
        type(index) is not int
        or not 0 <= index < MOST
        or type(attempts) is not int
        or not isinstance(error, str)
        or not isinstance(detail, str)
    ):
        raise ValueError("an ending that is none")
    return (Ending(ending).value, error), Example(index, detail)


def tally(layout: RunLayout, info: RunInfo) -> Tally:
    """Of every manifest. Raises VolumeUnusable."""
    whole = Tally()
    with ThreadPoolExecutor(READERS) as pool:
        parts = pool.map(lambda shards: _tally_of(layout, info, shards), _batches(info.shards))
        for part in parts:
            whole.merge(part)
    return whole


def _batches(shards: int) -> Iterator[range]:
    size = -(-shards // PARTS) or 1
    return (range(begin, min(begin + size, shards)) for begin in range(0, shards, size))


def _tally_of(layout: RunLayout, info: RunInfo, shards: Sequence[int]) -> Tally:
    part = Tally()
    for shard in shards:
        path = layout.manifest(shard)
        try:
            table = read_table(path.read_bytes(), path)
            part.add(table, info.run, shard, len(info.shard_range(shard)))
        except FileNotFoundError:
            part.open.append(shard)
        except OSError as error:
            raise VolumeUnusable(f"{layout.root} cannot be read ({error})", do="Mount the shared volume.") from error
        except (RunDamaged, ValueError, TypeError, KeyError, AttributeError):
            part.unsound.append(shard)
    return part


def add_published(whole: Tally, layout: RunLayout, info: RunInfo) -> None:
    """What is done in shards that have not ended, by their files: the slow way, where no Redis knows it.

    Raises VolumeUnusable.
    """
    left = [*whole.open, *whole.unsound]
    with ThreadPoolExecutor(READERS) as pool:
        for state in pool.map(lambda shard: survey_shard(layout, info, shard), left):
            whole.lengths.update(d.tokens for d in state.done)
            whole.sizes.update(d.bytes for d in state.done)
