"""A second plugin that damages capture on purpose, one way at a time: a test that it passes shows nothing.

Loaded in the server before hsqueue's own. The file that HSQ_MUTANT names holds the name of the damage; it is read
at every forward pass, so that one server serves all that need no restart.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

VARIABLE = "HSQ_MUTANT"


def chosen() -> str:
    return Path(os.environ[VARIABLE]).read_text().strip()


def register() -> None:
    damage_rows()
    damage_norm()
    damage_layers()
    move_hook_point()


def damage_rows() -> None:
    from hscapture.sglang import forward
    from hscapture.sglang.spans import Span

    spans_of, states_of = forward.wanted_spans, forward.wanted_states

    def wanted_spans(batch: Sequence[Any]) -> list[Span]:
        if chosen() == "skip-others":
            return [Span(0, sum(extend.extend_len for extend in batch if extend.wants_capture))]
        return spans_of(batch)

    def wanted_states(recipe: Any, batch: Any, input_ids: torch.Tensor, hidden: Any, aux: Any) -> Any:
        if chosen() == "rows":
            input_ids, hidden = input_ids.roll(1, 0), hidden.roll(1, 0)
            aux = [part.roll(1, 0) for part in aux]
        if chosen() == "states":
            hidden, aux = hidden.roll(1, 0), [part.roll(1, 0) for part in aux]
        return states_of(recipe, batch, input_ids, hidden, aux)

    forward.wanted_spans = wanted_spans
    from hscapture.sglang import session

    session.wanted_states = wanted_states


def damage_norm() -> None:
    from hscapture.sglang import forward

    last_of = forward._last

    def _last(recipe: Any, hidden: torch.Tensor, spans: Any) -> torch.Tensor:
        if chosen() == "norm":
            hidden = hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + 1e-6)
        return last_of(recipe, hidden, spans)

    forward._last = _last


def damage_layers() -> None:
    from hscapture.sglang import start

    arm = start.arm

    def arm_wrongly(model: Any, layers: tuple[int, ...], num_layers: int, *, default: bool) -> Any:
        capture = arm(model, layers, num_layers, default=default)
        if chosen() == "layers":
            model.set_eagle3_layers_to_capture(list(layers))
        if chosen() == "model-disagrees":
            model.set_eagle3_layers_to_capture = lambda ids: None
            model.model.layers_to_capture = [k + 1 for k in layers]
            capture = arm(model, layers, num_layers, default=default)
        return replace(capture)

    start.arm = arm_wrongly


def move_hook_point() -> None:
    if chosen() == "moved":
        from sglang.srt.managers.scheduler import Scheduler

        original = Scheduler.process_batch_result

        def process_batch_result(self: Any, work: Any, outcome: Any) -> Any:
            return original(self, work, outcome)

        Scheduler.process_batch_result = process_batch_result
