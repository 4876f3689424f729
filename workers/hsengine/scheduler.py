"""Continuous batching on a thread of its own: prefill first, then one decode step for all that are running."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue

import torch

from hscapture.assemble import Assembler, Dump
from hscapture.rows import split
from hsengine.attention import Part
from hsengine.misbehave import Mischief
from hsengine.model import Model
from hsengine.policy import Limits, plan_prefill
from hsengine.request import Finish, Request, abort, length, stop
from hsengine.stats import Stats

log = logging.getLogger(__name__)

DIED = 70
"""Exit status after a fault that a real server does not survive either."""


@dataclass(frozen=True, slots=True)
class Abort:
    """rid: requests whose id begins so are aborted, as SGLang does it; the empty string means all."""

    rid: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Ends the thread after the pass that is running."""


Item = Request | Abort | Stop
Finished = Sequence[tuple[Request, Finish]]


class Scheduler(threading.Thread):
    """Owns the model. inbox: what to do, from any thread; taken in order, between two forward passes.
    submit_dump: takes a whole dump over, called before its request counts as finished.
    on_finished: called on this thread with the requests that ended in one pass.
    """

    def __init__(
        self,
        inbox: SimpleQueue[Item],
        model: Model,
        limits: Limits,
        submit_dump: Callable[[Dump], None],
        on_finished: Callable[[Finished], None],
        stats: Stats,
        mischief: Mischief,
        threads: int = 1,
    ) -> None:
        super().__init__(name="scheduler", daemon=True)
        self._model, self._limits, self._stats, self._mischief = model, limits, stats, mischief
        self._submit_dump, self._on_finished = submit_dump, on_finished
        self._inbox = inbox
        self._waiting: list[Request] = []
        self._running: list[Request] = []
        self._assembler = Assembler()
        self._torch_threads = threads

    def run(self) -> None:
        # The number of OpenMP threads belongs to the thread that asks for it.
        torch.set_num_threads(self._torch_threads)
        try:
            while self._receive():
                if self._waiting:
                    self._prefill()
                elif self._running:
                    self._decode()
        except BaseException:
            log.critical("the scheduler died; the server goes with it", exc_info=True)
            os._exit(DIED)

    def _receive(self) -> bool:
        """Takes in what has arrived, waiting for it when there is nothing to compute. False: stop."""
        block = not (self._waiting or self._running)
        while True:
            try:
                item = self._inbox.get(block=block)
            except Empty:
                return True
            block = False
            if isinstance(item, Stop):
                return False
            if isinstance(item, Abort):
                self._abort(item.rid)
            else:
                self._admit(item)

    def _admit(self, request: Request) -> None:
        self._require_survivable(request)
        if self._mischief.aborts(request):
            self._finish([(request, abort("Aborted by the engine."))])
            return
        self._mischief.cut(request)
        request.cached = self._mischief.cached_tokens(request)
        self._waiting.append(request)

    def _require_survivable(self, request: Request) -> None:
        """Dies as SGLang does: a token id without an embedding brings the whole process down."""
        vocabulary = self._model.info.vocab_size
        bad = next((token for token in request.input_ids if not 0 <= token < vocabulary), None)
        if bad is not None:
            log.critical("token id %d of %s is outside the vocabulary of %d", bad, request.rid, vocabulary)
            os._exit(DIED)
        if self._mischief.kills(request):
            log.critical("%s kills the server, as it was asked to", request.rid)
            os._exit(DIED)

    def _prefill(self) -> None:
        room = max(1, self._limits.max_running - len(self._running))
        self._mischief.reorder(self._waiting)
        first = self._waiting[:room]
        sizes = [(r.remaining, self._mischief.chunk(self._limits.chunk)) for r in first]
        rows = plan_prefill(sizes, self._limits.prefill_tokens)
        batch = list(zip(first, rows, strict=False))
        parts = [Part(r.input_ids[r.computed : r.computed + n], r.past_for(n)) for r, n in batch]
        states = self._model.forward(parts)
        for piece in split([extend for r, n in batch for extend in r.extends(n)], states):
            dump = self._assembler.add(piece)
            if dump is not None:
                self._submit_dump(dump)
        self._stats.prefill_passes += 1
        self._stats.prefill_tokens += states.tokens
        self._after_prefill(batch)

    def _after_prefill(self, batch: Sequence[tuple[Request, int]]) -> None:
        end, begun, finished = 0, [], []
        for request, rows in batch:
            end += rows
            request.computed += rows
            if request.remaining:
                continue
            if request.max_new_tokens:
                begun.append((request, end - 1))
            else:
                finished.append((request, length(0)))
        self._waiting = [r for r in self._waiting if r.remaining]
        if begun:
            self._running += [request for request, _ in begun]
            tokens = self._model.next_tokens([row for _, row in begun])
            finished += self._append([request for request, _ in begun], tokens)
        self._finish(finished)

    def _decode(self) -> None:
        batch = self._running[: self._limits.max_running]
        self._model.forward([Part(r.output_ids[-1:], r.kv) for r in batch])
        self._stats.decode_passes += 1
        self._stats.decode_tokens += len(batch)
        self._finish(self._append(batch, self._model.next_tokens(range(len(batch)))))

    def _append(self, batch: Sequence[Request], tokens: Sequence[int]) -> list[tuple[Request, Finish]]:
        """Adds one token to each completion; those that end with it leave the running batch."""
        finished = []
        for request, token in zip(batch, tokens, strict=True):
            request.output_ids.append(token)
            if token in request.stop_tokens:
                finished.append((request, stop(token)))
            elif len(request.output_ids) >= request.max_new_tokens:
                finished.append((request, length(len(request.output_ids))))
        ended = {id(request) for request, _ in finished}
        self._running = [r for r in self._running if id(r) not in ended]
        return finished

    def _abort(self, prefix: str) -> None:
        hit = [r for r in (*self._waiting, *self._running) if r.rid.startswith(prefix)]
        gone = {id(r) for r in hit}
        self._waiting = [r for r in self._waiting if id(r) not in gone]
        self._running = [r for r in self._running if id(r) not in gone]
        for request in hit:
            self._assembler.drop(request.rid)
        self._finish([(request, abort("Abort in waiting queue")) for request in hit])

    def _finish(self, finished: Finished) -> None:
        if finished:
            self._stats.finished += len(finished)
            self._stats.aborted += sum(finish.type == "abort" for _, finish in finished)
            self._on_finished(finished)
