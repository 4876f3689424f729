"""Where the plugin takes hold of SGLang, and whether those places are still as it knows them."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class HookPoint:
    """target: dotted path of a function. parameters: the names that its signature must begin with."""

    target: str
    parameters: tuple[str, ...]


LOAD_MODEL = HookPoint("sglang.srt.model_executor.model_runner.ModelRunner.load_model", ("self",))
INIT_INFO = HookPoint("sglang.srt.managers.scheduler.Scheduler.get_init_info", ("self",))
INTERNAL_STATE = HookPoint("sglang.srt.managers.scheduler.Scheduler.get_internal_state", ("self", "recv_req"))
RUN_BATCH = HookPoint("sglang.srt.managers.scheduler.Scheduler.run_batch", ("self", "batch"))
LOGITS = HookPoint(
    "sglang.srt.layers.logits_processor.LogitsProcessor.forward",
    ("self", "input_ids", "hidden_states", "lm_head", "logits_metadata", "aux_hidden_states"),
)
PROCESS_RESULT = HookPoint("sglang.srt.managers.scheduler.Scheduler.process_batch_result", ("self", "batch", "result"))
ABORT = HookPoint("sglang.srt.managers.scheduler.Scheduler.abort_request", ("self", "recv_req"))
HOOK_POINTS = (LOAD_MODEL, INIT_INFO, INTERNAL_STATE, RUN_BATCH, LOGITS, PROCESS_RESULT, ABORT)

BATCH = "sglang.srt.managers.schedule_batch.ScheduleBatch"
BATCH_FIELDS = ("reqs", "extend_lens", "prefix_lens", "forward_mode")


def moved(
    resolve: Callable[[str], Any] = pkgutil.resolve_name, points: Iterable[HookPoint] = HOOK_POINTS
) -> list[tuple[str, str]]:
    """(target, phrase) of each place that is not what the plugin was written for; empty where all are."""
    found = [(point.target, phrase) for point in points if (phrase := _difference(resolve, point))]
    try:
        fields = getattr(resolve(BATCH), "__dataclass_fields__", {})
    except (ImportError, AttributeError) as error:
        return [*found, (BATCH, f"{BATCH} is gone ({error})")]
    absent = [name for name in BATCH_FIELDS if name not in fields]
    if absent:
        found.append((BATCH, f"{BATCH} has no {', '.join(absent)}"))
    return found


def _difference(resolve: Callable[[str], Any], point: HookPoint) -> str:
    try:
        names = tuple(inspect.signature(resolve(point.target)).parameters)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        return f"{point.target} is gone ({error})"
    if names[: len(point.parameters)] != point.parameters:
        return f"{point.target} takes ({', '.join(names)}), not ({', '.join(point.parameters)})"
    return ""
