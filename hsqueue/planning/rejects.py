"""Lines that do not become samples: why, where they stand, and the list of them that a person reads."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType

from hsqueue.contracts.errors import RunDamaged


class Reason(StrEnum):
    """Why a line was rejected. Values are what ``rejected.jsonl``, ``plan.json`` and the summary show."""

    BAD_JSON = "bad json"
    LINE_TOO_LONG = "line too long"
    UNKNOWN_FORM = "unknown form"
    MISSING_ID = "missing id"
    UNUSABLE_ID = "unusable id"
    DUPLICATE_ID = "duplicate id"
    UNKNOWN_ROLE = "unknown role"
    UNSUPPORTED_CONTENT = "unsupported content"
    BAD_TOOLS = "bad tools"
    BAD_UNICODE = "bad unicode"
    EMPTY = "empty"
    BAD_TOKENS = "bad token ids"
    BAD_MASK = "bad loss mask"
    MASK_LENGTH = "loss mask length mismatch"
    TEMPLATE_FAILED = "chat template failed"
    TURN_NOT_FOUND = "assistant turn not found"
    TOKENIZER_FAILED = "tokenizer failed"
    OUTSIDE_VOCABULARY = "token id outside the vocabulary"
    OVER_LENGTH = "over length"
    TOO_FEW_SUPERVISED = "too few supervised tokens"


@dataclass(frozen=True, slots=True)
class Reject:
    """A verdict on one record, before it is known where the record stands. detail: one line, for a person."""

    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """One line of ``rejected.jsonl``. line: from 1; in Parquet and Arrow files and JSON arrays, the row.
    id: the user's, None where the record has none that could be read.
    """

    file: str
    line: int
    id: str | None
    reason: Reason
    detail: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str, where: object) -> Rejected:
        """Raises RunDamaged where `text` is not what ``to_json`` writes. where: named in the error."""
        try:
            fields = json.loads(text)
            return cls(**{**fields, "reason": Reason(fields["reason"])})
        except (ValueError, TypeError, KeyError) as error:
            raise RunDamaged(
                f"{where} is damaged ({error})", do="The list is for people; the run itself does not need it."
            ) from None


class RejectLog:
    """Writes ``rejected.jsonl`` line by line and counts by reason. On disk for good once it is closed."""

    def __init__(self, path: Path) -> None:
        self.counts: Counter[str] = Counter()
        self._file = path.open("x", encoding="ascii")

    def add(self, rejected: Rejected) -> None:
        self.counts[rejected.reason.value] += 1
        self._file.write(rejected.to_json() + "\n")

    def __enter__(self) -> RejectLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file:
            self._file.flush()
            os.fsync(self._file.fileno())


def read_rejected(path: Path) -> Iterator[Rejected]:
    """Streams ``rejected.jsonl``; nothing where the file does not exist. Raises RunDamaged on a damaged line."""
    if not path.exists():
        return
    with path.open(encoding="ascii", errors="replace") as file:
        for number, line in enumerate(file, 1):
            yield Rejected.from_json(line, f"{path}:{number}")


def summarise(rejected: Iterable[Rejected], examples: int, more: object) -> list[str]:
    """Plain lines: each reason with its count, the most frequent first, under it its first `examples`.

    more: where the whole list stands, named where lines are left out.
    """
    counts: Counter[Reason] = Counter()
    first: dict[Reason, list[Rejected]] = {}
    for one in rejected:
        counts[one.reason] += 1
        if counts[one.reason] <= examples:
            first.setdefault(one.reason, []).append(one)
    lines = []
    for reason, count in counts.most_common():
        lines.append(f"{count} rejected: {reason}")
        shown = first.get(reason, [])
        lines += [_printable(f"  {one.file}:{one.line}{_named(one.id)}: {one.detail}") for one in shown]
        if count > len(shown):
            lines.append(f"  and {count - len(shown)} more in {more}")
    return lines


def _named(id: str | None) -> str:
    return "" if id is None else f" (id {id[:80]})"


def _printable(text: str) -> str:
    """Ids and keys are foreign: a terminal gets no control character and no half of a surrogate pair."""
    return "".join(character if character.isprintable() else "?" for character in text)


def rejection_summary(path: Path, examples: int = 3) -> list[str]:
    """``summarise`` of the ``rejected.jsonl`` at `path`; empty where nothing was rejected."""
    return summarise(read_rejected(path), examples, path)
