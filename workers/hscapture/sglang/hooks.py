"""The hooks: what SGLang calls, and what becomes of it. Whatever fails here is logged, and SGLang goes on."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from hscapture.card import write_card
from hscapture.config import CaptureSettings
from hscapture.sglang.describe import problem_card
from hscapture.sglang.session import Session
from hscapture.sglang.start import arm_model, open_session
from hsqueue.contracts.card import EngineCard
from hsqueue.contracts.errors import HsqueueError

log = logging.getLogger(__name__)

PIECES = "hsqueue_pieces"
"""The attribute under which a forward pass's pieces travel with its result through SGLang's queue."""


class Hooks:
    """The state of one process of the server.

    version: SGLang's. leads: whether this rank writes, asked once its model is loaded. problem: why nothing is to
    be captured, known before that.
    """

    def __init__(self, settings: CaptureSettings, version: str, leads: Callable[[], bool], problem: str = "") -> None:
        self._settings, self._version, self._leads, self._problem = settings, version, leads, problem
        self._card: EngineCard | None = None
        self._session: Session | None = None

    def after_load_model(self, _result: Any, runner: Any, *_: Any, **__: Any) -> None:
        """AFTER ``ModelRunner.load_model``."""
        if getattr(runner, "is_draft_worker", False):
            return
        problem = self._problem
        leads = True
        try:
            leads = self._leads()
            if not problem:
                self._start(runner, leads)
        except HsqueueError as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001 - an unforeseen model or version must still be served
            problem = f"{type(error).__name__}: {error}"
        if problem:
            self._problem = problem
            if leads:
                self.refuse(runner.server_args)

    def _start(self, runner: Any, leads: bool) -> None:
        armed = arm_model(runner, self._settings, self._version)
        if not leads:
            return
        self._session = open_session(armed, self._settings, torch.device(runner.device))
        self._card = armed.card
        log.info(
            "hsqueue captures layers %s (held %s), norm %s, into %s",
            list(armed.card.layers), list(armed.card.layers_held), armed.card.norm, self._settings.dump_dir,
        )  # fmt: skip

    def after_init_info(self, result: dict[str, Any], scheduler: Any, *_: Any, **__: Any) -> dict[str, Any]:
        """AFTER ``Scheduler.get_init_info``: by now it is known how long a prompt may be. What is returned appears
        in ``/server_info``, which proves to the worker whose dump directory it reads.
        """
        if self._card is None:
            return result
        if not self._card.problem:
            # SGLang refuses a prompt of this length and takes one that is shorter by one.
            self._card = replace(self._card, context_length=max(1, int(scheduler.max_req_input_len) - 1))
            with contextlib.suppress(OSError):
                write_card(self._settings.dump_dir, self._card)
        return {**result, **self._report()}

    def after_internal_state(self, result: Any, *_: Any, **__: Any) -> None:
        """AFTER ``Scheduler.get_internal_state``: the only way into ``/server_info`` of a data parallel server."""
        result.internal_state.update(self._report())

    def _report(self) -> dict[str, str]:
        card = self._card
        return {} if card is None else {"hsq_instance": card.instance, "hsq_problem": card.problem}

    def around_run_batch(self, original: Callable[..., Any], scheduler: Any, batch: Any, *args: Any, **kw: Any) -> Any:
        """AROUND ``Scheduler.run_batch``."""
        session = self._session
        if session is None or not batch.forward_mode.is_extend():
            return original(scheduler, batch, *args, **kw)
        session.begin(batch)
        pieces = []
        try:
            result = original(scheduler, batch, *args, **kw)
        finally:
            pieces = session.end()
        if pieces:
            setattr(result, PIECES, pieces)
        return result

    def around_logits(
        self,
        original: Callable[..., Any],
        processor: Any,
        input_ids: torch.Tensor,
        hidden_states: torch.Tensor,
        lm_head: Any,
        logits_metadata: Any,
        aux_hidden_states: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """AROUND ``LogitsProcessor.forward``: before it, since the states are its to change."""
        if self._session is not None:
            self._session.observe(input_ids, hidden_states, aux_hidden_states)
        return original(
            processor, input_ids, hidden_states, lm_head, logits_metadata, aux_hidden_states, *args, **kwargs
        )

    def before_process_result(self, _scheduler: Any, batch: Any, result: Any, *_: Any, **__: Any) -> None:
        """BEFORE ``Scheduler.process_batch_result``, so before the response is sent."""
        if self._session is not None:
            self._session.collect(batch, vars(result).pop(PIECES, ()))

    def after_abort(self, _result: Any, _scheduler: Any, request: Any, *_: Any, **__: Any) -> None:
        """AFTER ``Scheduler.abort_request``."""
        if self._session is not None:
            self._session.abort(str(request.rid or ""), bool(request.abort_all))

    def refuse(self, server_args: Any = None) -> None:
        """Capture stays off. Said in the log, in the card and in ``/server_info``."""
        self._session = None
        self._card = problem_card(self._problem, self._version, server_args)
        log.error("hsqueue does not capture: %s", self._problem)
        with contextlib.suppress(OSError):
            write_card(self._settings.dump_dir, self._card)
