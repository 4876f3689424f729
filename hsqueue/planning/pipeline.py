"""Rows to tokens in batches, in order: what is rejected on the way keeps its place in the stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hsqueue.contracts.errors import UsageError
from hsqueue.planning.readers import Row
from hsqueue.planning.records import Body, Conversation, Text, Tokens, parse_body, record_id
from hsqueue.planning.rejects import Reason, Reject, Rejected
from hsqueue.planning.tokens import Tokenizer

BATCH_RECORDS = 512
BATCH_CHARACTERS = 4 << 20
"""Of all contents together; a batch of long conversations must not fill the memory."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A record of a known form. line: from 1."""

    file: str
    line: int
    id: str
    body: Body


@dataclass(frozen=True, slots=True)
class Tokenised:
    """A candidate's tokens, not yet held against any limit. line: from 1."""

    file: str
    line: int
    id: str
    tokens: Tokens


def tokenise(rows: Iterable[Row], tokenizer: Tokenizer | None, line_ids: bool) -> Iterator[Tokenised | Rejected]:
    """One result a row, in order. line_ids: records without an id get ``file:line``.

    Raises UsageError for a record that needs a tokenizer, or a chat template, where there is none.
    """
    for batch in _batches(_candidate(row, line_ids) for row in rows):
        yield from _encode(batch, tokenizer)


def _candidate(row: Row, line_ids: bool) -> Candidate | Rejected:
    if isinstance(row.record, Reject):
        return _rejected(row.file, row.line, None, row.record)
    id = record_id(row.record)
    if isinstance(id, Reject):
        if not (line_ids and id.reason is Reason.MISSING_ID):
            return _rejected(row.file, row.line, None, id)
        id = f"{row.file}:{row.line}"
    body = parse_body(row.record)
    if isinstance(body, Reject):
        return _rejected(row.file, row.line, id, body)
    return Candidate(row.file, row.line, id, body)


def _rejected(file: str, line: int, id: str | None, reject: Reject) -> Rejected:
    return Rejected(file, line, id, reject.reason, reject.detail)


def _batches(items: Iterable[Candidate | Rejected]) -> Iterator[list[Candidate | Rejected]]:
    batch: list[Candidate | Rejected] = []
    characters = 0
    for item in items:
        batch.append(item)
        characters += _characters(item.body) if isinstance(item, Candidate) else 0
        if len(batch) >= BATCH_RECORDS or characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _characters(body: Body) -> int:
    if isinstance(body, Text):
        return len(body.text)
    if isinstance(body, Tokens):
        return 8 * len(body.input_ids)
    return sum(len(str(message["content"])) for message in body.messages)


def _encode(batch: Sequence[Candidate | Rejected], tokenizer: Tokenizer | None) -> Iterator[Tokenised | Rejected]:
    encoded = iter(_encode_bodies([item for item in batch if isinstance(item, Candidate)], tokenizer))
    for item in batch:
        if isinstance(item, Rejected):
            yield item
            continue
        tokens = item.body if isinstance(item.body, Tokens) else next(encoded)
        if isinstance(tokens, Reject):
            yield _rejected(item.file, item.line, item.id, tokens)
        else:
            yield Tokenised(item.file, item.line, item.id, tokens)


def _encode_bodies(candidates: Sequence[Candidate], tokenizer: Tokenizer | None) -> list[Tokens | Reject]:
    """Of those that are not tokens already, in order."""
    waiting = [one for one in candidates if isinstance(one.body, Conversation | Text)]
    if not waiting:
        return []
    if tokenizer is None:
        raise UsageError(
            f"{waiting[0].file}:{waiting[0].line} has to be tokenised and no tokenizer was given",
            do="Say --tokenizer and the model's directory, or give prompts as input_ids.",
        )
    return tokenizer.encode([one.body for one in waiting if isinstance(one.body, Conversation | Text)])
