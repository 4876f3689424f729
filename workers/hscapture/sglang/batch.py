"""SGLang's batch of requests read as the rows that each contributes to a forward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from hscapture.rows import Extend
from hsqueue.contracts.errors import DumpMalformed


class Request(Protocol):
    """What is read of SGLang's ``Req``. to_finish: why it is about to be ended, set by an abort."""

    rid: str
    origin_input_ids: Sequence[int]
    output_ids: Sequence[int]
    to_finish: object
    is_retracted: bool

    def finished(self) -> bool: ...


class Batch(Protocol):
    """What is read of SGLang's ``ScheduleBatch``; one entry a request in each list."""

    reqs: Sequence[Request]
    extend_lens: Sequence[int]
    prefix_lens: Sequence[int]


def extends_of(batch: Batch, wants: Callable[[str], bool]) -> list[Extend]:
    """What each request of an extend batch contributes, in the order of its rows.

    Raises DumpMalformed where the batch's lists are not of one length.
    """
    if not len(batch.reqs) == len(batch.extend_lens) == len(batch.prefix_lens):
        raise DumpMalformed(
            "a batch whose lists are not of one length",
            expected=f"{len(batch.reqs)} requests",
            found=f"{len(batch.extend_lens)} lengths and {len(batch.prefix_lens)} prefixes",
        )
    rows = zip(batch.reqs, batch.extend_lens, batch.prefix_lens, strict=True)
    return [_extend(request, extend, prefix, wants(request.rid)) for request, extend, prefix in rows]


def ended(request: Request) -> bool:
    """Whether a request was aborted, or has ended otherwise. An aborted one may still run, with other tokens."""
    return request.to_finish is not None or request.finished()


def _extend(request: Request, extend_len: int, prefix_len: int, ours: bool) -> Extend:
    prompt = len(request.origin_input_ids)
    # Mixed batches carry decode rows, and a request that lost its memory while it decoded is computed again.
    prefills = prefix_len < prompt and not request.output_ids
    return Extend(
        rid=request.rid,
        extend_len=extend_len,
        prefix_len=prefix_len,
        wants_capture=ours and prefills and not ended(request),
        is_last_chunk=prefix_len + extend_len >= prompt,
    )
