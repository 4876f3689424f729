"""Ways to run SGLang in which rows could not be told apart, refused before anything is captured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hsqueue.contracts.errors import EngineUnfit


@dataclass(frozen=True, slots=True)
class Rule:
    """refuses: whether a server with these arguments is refused. problem, do: what is said then."""

    refuses: Callable[[Any], bool]
    problem: str
    do: str


def _set(name: str) -> Callable[[Any], bool]:
    return lambda arguments: bool(getattr(arguments, name, None))


def _above_one(name: str) -> Callable[[Any], bool]:
    return lambda arguments: int(getattr(arguments, name, 1) or 1) > 1


RULES = (
    Rule(_set("speculative_algorithm"), "speculative decoding is on", "Start SGLang without --speculative-algorithm."),
    Rule(_above_one("pp_size"), "pipeline parallelism is on", "Use --tp-size or --dp-size instead of --pp-size."),
    Rule(_above_one("attn_cp_size"), "context parallelism is on", "Start SGLang without it; it reorders rows."),
    Rule(_set("enable_pdmux"), "prefills are multiplexed with decodes", "Start SGLang without --enable-pdmux."),
    Rule(_set("dllm_algorithm"), "the model is a diffusion model", "Serve an autoregressive model."),
    Rule(
        lambda arguments: getattr(arguments, "disaggregation_mode", "null") not in (None, "null"),
        "prefill and decode are disaggregated",
        "Start SGLang without --disaggregation-mode.",
    ),
)


def require_fit(server_args: Any, model_config: Any) -> None:
    """Raises EngineUnfit, naming the option to change. server_args, model_config: SGLang's."""
    for rule in RULES:
        if rule.refuses(server_args):
            raise EngineUnfit(rule.problem, do=rule.do)
    if not getattr(model_config, "is_generation", True):
        raise EngineUnfit("the model does not generate text", do="Serve a causal language model.")
