"""Chunked prefill stitched together: a request's pieces wait here until its last chunk has run."""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass, field

from hscapture.rows import Piece

log = logging.getLogger(__name__)

MAX_BYTES = 2 << 30
MAX_REQUESTS = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Dump:
    """All pieces of one prompt, in order. prefix_len: tokens that were computed by no piece."""

    rid: str
    prefix_len: int
    pieces: tuple[Piece, ...]

    @property
    def chunks(self) -> tuple[int, ...]:
        """Rows of each prefill chunk."""
        return tuple(piece.states.tokens for piece in self.pieces)

    @property
    def tokens(self) -> int:
        return sum(self.chunks)

    @property
    def nbytes(self) -> int:
        return sum(piece.states.nbytes for piece in self.pieces)

    def ready(self) -> None:
        for piece in self.pieces:
            piece.ready()

    def release(self) -> None:
        for piece in self.pieces:
            piece.release()


@dataclass(slots=True)
class _Unfinished:
    """next: the prefix_len that the following piece must have. given_up: its earlier pieces were dropped."""

    pieces: list[Piece] = field(default_factory=list)
    next: int = 0
    nbytes: int = 0
    given_up: bool = False


class Assembler:
    """Keeps pieces by rid; belongs to the one thread that runs forward passes.

    A piece that does not continue where the last one ended starts the request anew: a scheduler that
    retracts a request for want of memory computes it again from the beginning. Held states are bounded
    by `max_bytes`; past it the oldest unfinished request is given up and makes no dump, so that a
    request that never ends (a client's abort) cannot hold memory for ever.
    """

    def __init__(self, max_bytes: int = MAX_BYTES, max_requests: int = MAX_REQUESTS) -> None:
        self._max_bytes, self._max_requests = max_bytes, max_requests
        self._unfinished: OrderedDict[str, _Unfinished] = OrderedDict()
        self._bytes = 0

    def add(self, piece: Piece) -> Dump | None:
        """The whole dump where `piece` was its last, else None. Takes the piece over."""
        request = self._unfinished.get(piece.rid)
        if request is not None and piece.prefix_len != request.next:
            self.drop(piece.rid)
            request = None
        if request is None:
            request = self._unfinished[piece.rid] = _Unfinished()
        request.next = piece.prefix_len + piece.states.tokens
        if request.given_up:
            piece.release()
        else:
            self._hold(request, piece)
        if piece.is_last_chunk:
            return self._finish(piece.rid)
        self._enforce_bounds()
        return None

    def drop(self, rid: str) -> None:
        """Forgets a request that was aborted, retracted or restarted. Unknown rids are none of its business."""
        request = self._unfinished.pop(rid, None)
        if request is not None:
            self._let_go(request)

    @property
    def nbytes(self) -> int:
        """Bytes of states held for unfinished requests."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._unfinished)

    def _hold(self, request: _Unfinished, piece: Piece) -> None:
        request.pieces.append(piece)
        request.nbytes += piece.states.nbytes
        self._bytes += piece.states.nbytes

    def _let_go(self, request: _Unfinished) -> None:
        for piece in request.pieces:
            piece.release()
        self._bytes -= request.nbytes
        request.pieces, request.nbytes = [], 0

    def _finish(self, rid: str) -> Dump | None:
        request = self._unfinished.pop(rid)
        self._bytes -= request.nbytes
        if request.given_up:
            return None
        return Dump(rid, request.pieces[0].prefix_len, tuple(request.pieces))

    def _enforce_bounds(self) -> None:
        for rid, request in self._unfinished.items():
            if self._bytes <= self._max_bytes:
                break
            if request.pieces:
                log.warning(
                    "no dump of %s: unfinished prefills hold more than %d bytes, and it is the oldest",
                    rid, self._max_bytes,
                )  # fmt: skip
                self._let_go(request)
                request.given_up = True
        while len(self._unfinished) > self._max_requests:
            self.drop(next(iter(self._unfinished)))
