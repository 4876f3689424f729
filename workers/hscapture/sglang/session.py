"""One engine's capture from a forward pass to the writer: the state between the hooks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from hscapture.assemble import Assembler, Dump
from hscapture.complaints import Complaints
from hscapture.rows import Extend, Piece, split
from hscapture.sglang.batch import Batch, Request, ended, extends_of
from hscapture.sglang.forward import Recipe, wanted_states
from hscapture.sglang.stage import Staged, Stager
from hscapture.sglang.unfinished import Unfinished
from hsqueue.contracts.errors import DumpMalformed

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Pass:
    """A forward pass under way. batch: what each request contributes. staged: its states, once they are known."""

    batch: Sequence[Extend]
    staged: Staged | None = None
    error: Exception | None = None


class Session:
    """Belongs to the scheduler's thread. Nothing here raises: capture may fail, the server must not.

    wants: whether a rid is captured. submit: takes whole dumps, and holds the caller up while too much is pending.
    discard: takes back the dump of a rid, wherever it is by now.
    """

    def __init__(
        self,
        recipe: Recipe,
        stager: Stager,
        wants: Callable[[str], bool],
        submit: Callable[[Dump], None],
        discard: Callable[[str], None],
        complaints: Complaints,
    ) -> None:
        self._recipe, self._stager, self._wants, self._submit = recipe, stager, wants, submit
        self._discard, self._complaints = discard, complaints
        self._assembler = Assembler()
        self._unfinished = Unfinished()
        self._current: Pass | None = None

    def begin(self, batch: Batch) -> None:
        """Before a forward pass of an extend batch."""
        self._current = None
        try:
            extends = extends_of(batch, self._wants)
        except Exception as error:  # noqa: BLE001
            self._complaints.about("a whole batch", error)
            return
        if any(extend.wants_capture for extend in extends):
            self._current = Pass(extends)
            self._set_taps(True)

    def observe(
        self, input_ids: torch.Tensor, hidden: torch.Tensor, aux: torch.Tensor | Sequence[torch.Tensor] | None
    ) -> None:
        """Within a forward pass, before its logits. Does nothing outside one, or where nobody wants capture."""
        current = self._current
        if current is None:
            return
        try:
            if current.staged is not None:
                raise DumpMalformed("one forward pass computed logits twice", do="Switch speculative decoding off.")
            states = wanted_states(self._recipe, current.batch, input_ids, hidden, aux)
            current.staged = self._stager.stage(states)
        except Exception as error:  # noqa: BLE001
            current.error = error

    def end(self) -> list[Piece]:
        """After a forward pass: the pieces of its requests, or none where they could not be had."""
        current, self._current = self._current, None
        if current is None:
            return []
        self._set_taps(False)
        wanted = [extend for extend in current.batch if extend.wants_capture]
        if current.staged is None and current.error is None:
            current.error = DumpMalformed(
                "a forward pass ran without SGLang's logits processor",
                do="Start the server without CUDA graphs for prefill; replayed graphs run no hooks.",
            )
        if current.error is not None or current.staged is None:
            self._complain(wanted, current)
            return []
        pieces = split(wanted, current.staged.states)
        current.staged.buffer.share(len(pieces))
        return [replace(p, ready=current.staged.ready, release=current.staged.buffer.release) for p in pieces]

    def collect(self, batch: Batch, pieces: Sequence[Piece]) -> None:
        """Before the results of a forward pass are processed."""
        requests = {request.rid: request for request in batch.reqs} if pieces else {}
        for piece in pieces:
            self._collect(piece, requests.get(piece.rid))
        for rid in self._unfinished.lost():
            self._assembler.drop(rid)

    def abort(self, rid: str, everything: bool) -> None:
        """After SGLang was told to abort what begins with `rid`, or everything. What has run already is known by its
        whole rid only: others of that beginning have ended well, and somebody reads them.
        """
        for begun in self._unfinished.begun():
            if everything or begun.startswith(rid):
                self._assembler.drop(begun)
                self._unfinished.forget(begun)
        if not everything and self._wants(rid):
            self._discard(rid)

    @property
    def held(self) -> int:
        """Bytes of states of requests whose prefill is not complete."""
        return self._assembler.nbytes

    def _collect(self, piece: Piece, request: Request | None) -> None:
        if request is None or ended(request) or request.is_retracted:
            piece.release()
            self._assembler.drop(piece.rid)
            self._unfinished.forget(piece.rid)
            return
        dump = self._assembler.add(piece)
        if piece.is_last_chunk:
            self._unfinished.forget(piece.rid)
        else:
            self._unfinished.watch(request)
        if dump is not None:
            self._submit(dump)

    def _complain(self, wanted: Sequence[Extend], failed: Pass) -> None:
        if failed.staged is not None:
            failed.staged.buffer.release()
        for extend in wanted:
            self._assembler.drop(extend.rid)
            self._unfinished.forget(extend.rid)
            if failed.error is not None:
                self._complaints.about(extend.rid, failed.error)

    def _set_taps(self, wanted: bool) -> None:
        for tap in self._recipe.taps:
            tap.wanted = wanted
            tap.take()
