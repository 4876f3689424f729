"""A shard's manifest: how every one of its samples ended. Written once, when the last of them has ended."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from hsqueue.contracts import CONTRACT_VERSION
from hsqueue.contracts.errors import RunDamaged, SkipError
from hsqueue.contracts.sample import Ending, GivenUp, Published
from hsqueue.contracts.work import Work
from hsqueue.store.files import reading, write_once
from hsqueue.store.layout import RunLayout

_CHECKSUM = re.compile(rb',"checksum":"([0-9a-f]{32})"\}')
"""The end of a manifest: xxh3-128 of every byte before it."""
_CHECKSUM_BYTES = len(',"checksum":""}') + 32
_SKIPS = frozenset(error.__name__ for error in SkipError.__subclasses__())


@dataclass(frozen=True, slots=True)
class Manifest:
    """done and given_up: ascending by index, together every sample of the shard. fence, worker: whose lease.
    work: how it came about.
    """

    run: str
    shard: int
    fence: int
    worker: str
    done: tuple[Published, ...]
    given_up: tuple[GivenUp, ...]
    work: Work

    @property
    def tokens(self) -> int:
        return sum(sample.tokens for sample in self.done)

    @property
    def total_bytes(self) -> int:
        return sum(sample.bytes for sample in self.done)

    def count(self, ending: Ending) -> int:
        return len(self.done) if ending is Ending.DONE else sum(g.ending is ending for g in self.given_up)

    def to_json(self) -> bytes:
        """Columns, not rows: a shard of a thousand samples stays below a hundred kilobytes."""
        text = json.dumps(
            {
                "contract": CONTRACT_VERSION, "run": self.run, "shard": self.shard, "fence": self.fence,
                "worker": self.worker,
                "done": {
                    "index": [d.index for d in self.done], "tokens": [d.tokens for d in self.done],
                    "bytes": [d.bytes for d in self.done], "digest": [d.digest for d in self.done],
                },
                "given_up": [[g.index, g.ending, g.attempts, g.error, g.detail] for g in self.given_up],
                "work": self.work.to_table(),
            },
            separators=(",", ":"),
        )  # fmt: skip
        return seal(text)

    @classmethod
    def from_json(cls, text: bytes, where: object) -> Manifest:
        """Raises RunDamaged where `text` is not, to the byte, what ``to_json`` wrote. where: named in the error."""
        table = read_table(text, where)
        try:
            columns = table["done"]
            rows = zip(columns["index"], columns["tokens"], columns["bytes"], columns["digest"], strict=True)
            manifest = cls(
                run=_text(table["run"]),
                shard=_number(table["shard"]),
                fence=_number(table["fence"]),
                worker=_text(table["worker"]),
                done=tuple(Published(_number(i), _number(t), _number(b), _text(d)) for i, t, b, d in rows),
                given_up=tuple(
                    GivenUp(_number(i), Ending(e), _number(a), _text(n), _text(d))
                    for i, e, a, n, d in table["given_up"]
                ),
                work=Work.from_table(table["work"]),
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise _damaged(where, error) from None
        return manifest

    def problem(self, run: str, shard: int, indices: Sequence[int]) -> str | None:
        """Why this is not the manifest of that shard, or None. indices: of the shard's samples."""
        listed = sorted([d.index for d in self.done] + [g.index for g in self.given_up])
        if (self.run, self.shard) != (run, shard):
            return f"is of run {self.run} shard {self.shard}"
        if listed != list(indices):
            return f"lists {len(listed)} samples of which {len(set(listed) & set(indices))} are the shard's"
        if any(g.ending is Ending.DONE for g in self.given_up):
            return "lists a sample as done without a file"
        for given in self.given_up:
            if (given.error in _SKIPS) != (given.ending is Ending.SKIPPED):
                return f"lists sample {given.index} as {given.ending} for {given.error:.40}, which never ends one so"
        return None


def read_table(text: bytes, where: object) -> dict[str, Any]:
    """A manifest's JSON, sound by its checksum and of this version. What it holds is still to be checked.

    Raises RunDamaged. where: named in the error.
    """
    try:
        _require_checksum(text)
        table = json.loads(text)
        if not isinstance(table, dict) or table["contract"] != CONTRACT_VERSION:
            raise ValueError(f"contract version {table['contract']}")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _damaged(where, error) from None
    return table


def _damaged(where: object, error: Exception) -> RunDamaged:
    return RunDamaged(
        f"manifest {where} is damaged ({str(error)[:120]})",
        do="Run hsqueue verify --repair; the shard's files are checked and a new manifest is written.",
    )


def seal(text: str) -> bytes:
    """A JSON object with the checksum of its bytes as its last field."""
    body = text.removesuffix("}").encode()
    return body + b',"checksum":"%s"}' % xxhash.xxh3_128_hexdigest(body).encode()


def _require_checksum(text: bytes) -> None:
    """Raises ValueError where `text` does not end with the checksum of what comes before."""
    found = _CHECKSUM.fullmatch(text[-_CHECKSUM_BYTES:])
    if found is None:
        raise ValueError("it does not end with its checksum")
    if found[1].decode() != xxhash.xxh3_128_hexdigest(text[:-_CHECKSUM_BYTES]):
        raise ValueError("its bytes are not those that were written")


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r:.40} is not a count")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.40} is not text")
    return value


def make_manifest(
    run: str, shard: int, fence: int, worker: str, done: Iterable[Published], given_up: Iterable[GivenUp],
    work: Work | None = None,
) -> Manifest:  # fmt: skip
    """work: None where nobody kept an account."""
    return Manifest(
        run, shard, fence, worker,
        tuple(sorted(done, key=lambda d: d.index)), tuple(sorted(given_up, key=lambda g: g.index)), work or Work(),
    )  # fmt: skip


def write_manifest(layout: RunLayout, manifest: Manifest) -> bool:
    """True where this call wrote it, False where one stood there. Raises VolumeUnusable."""
    return write_once(layout.manifest(manifest.shard), manifest.to_json())


def read_manifest(path: Path) -> Manifest | None:
    """The manifest at `path`, None where there is none. Raises RunDamaged, VolumeUnusable."""
    with reading(path):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
    return Manifest.from_json(data, path)
