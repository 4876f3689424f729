"""What SGLang calls at its start, in each of its processes: entry point ``hsqueue`` of ``sglang.srt.plugins``."""

from __future__ import annotations

import os
from pathlib import Path

from hscapture.config import CaptureSettings, from_environment
from hscapture.sglang import hookpoints
from hscapture.sglang.describe import instance
from hscapture.sglang.hooks import Hooks
from hsqueue.contracts.errors import UsageError


def register() -> None:
    """Registers the hooks where HSQ_DUMP_DIR is set; without it SGLang is left as it is."""
    if not os.environ.get("HSQ_DUMP_DIR"):
        return
    import sglang

    instance()
    version = str(getattr(sglang, "__version__", "unknown"))
    settings, problem = read_settings()
    moved = hookpoints.moved()
    if moved:
        problem = f"SGLang {version} is not as hsqueue knows it: {'; '.join(phrase for _, phrase in moved)}"
    hooks = Hooks(settings, version, leads, problem)
    broken = {target for target, _ in moved}
    if hookpoints.LOAD_MODEL.target in broken:
        hooks.refuse()
    _hook(hooks, broken, reports_only=bool(problem))


def read_settings() -> tuple[CaptureSettings, str]:
    """The settings, and what is wrong with them; then nothing but the directory is to be relied on."""
    try:
        return from_environment(os.environ), ""
    except UsageError as error:
        return CaptureSettings(dump_dir=Path(os.environ["HSQ_DUMP_DIR"])), str(error)


def leads() -> bool:
    """Whether this rank writes: one of each group that computes the same rows."""
    from sglang.srt.distributed.parallel_state import get_attn_tensor_model_parallel_rank

    return bool(get_attn_tensor_model_parallel_rank() == 0)


def _hook(hooks: Hooks, broken: set[str], *, reports_only: bool) -> None:
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    reports = [
        (hookpoints.LOAD_MODEL, hooks.after_load_model, HookType.AFTER),
        (hookpoints.INIT_INFO, hooks.after_init_info, HookType.AFTER),
        (hookpoints.INTERNAL_STATE, hooks.after_internal_state, HookType.AFTER),
    ]
    captures = [
        (hookpoints.RUN_BATCH, hooks.around_run_batch, HookType.AROUND),
        (hookpoints.LOGITS, hooks.around_logits, HookType.AROUND),
        (hookpoints.PROCESS_RESULT, hooks.before_process_result, HookType.BEFORE),
        (hookpoints.ABORT, hooks.after_abort, HookType.AFTER),
    ]
    for point, hook, kind in reports if reports_only else reports + captures:
        if point.target not in broken:
            HookRegistry.register(point.target, hook, kind)
