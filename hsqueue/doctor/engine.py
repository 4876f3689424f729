"""The engine: answers, captures into the dump directory, fits the run, and runs with settings that do not hinder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hsqueue.contracts.card import EngineCard
from hsqueue.contracts.errors import HsqueueError
from hsqueue.contracts.fingerprint import RunInfo
from hsqueue.doctor.check import Check, Verdict

SMALL_CHUNK = 2048
"""Tokens of a prefill batch below which a GPU is not filled."""


@dataclass(frozen=True, slots=True)
class Rule:
    """found: whether a server with this ``/server_info`` has the setting."""

    found: Callable[[dict[str, Any]], bool]
    verdict: Verdict
    text: str
    do: str


def _is_set(name: str) -> Callable[[dict[str, Any]], bool]:
    return lambda info: info.get(name) not in (None, False, "", "null", [])


def _above_one(name: str) -> Callable[[dict[str, Any]], bool]:
    return lambda info: (number := _number(info.get(name))) is not None and number > 1


def _small(name: str) -> Callable[[dict[str, Any]], bool]:
    return lambda info: (number := _number(info.get(name))) is not None and 0 < number < SMALL_CHUNK


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _replays_prefills(info: dict[str, Any]) -> bool:
    """Versions differ in the name; where all graphs are off, none is replayed."""
    names = ("disable_piecewise_cuda_graph", "disable_prefill_cuda_graph")
    return info.get("disable_cuda_graph") is False and any(info.get(name) is False for name in names)


RULES = (
    Rule(
        _is_set("speculative_algorithm"), "bad", "speculative decoding is on, which mixes states",
        "Start it without --speculative-algorithm.",
    ),
    Rule(_above_one("pp_size"), "bad", "pipeline parallelism is on", "Use --tp-size or --dp-size in place of it."),
    Rule(_above_one("attn_cp_size"), "bad", "context parallelism is on, which reorders rows", "Start it without."),
    Rule(_is_set("enable_pdmux"), "bad", "prefills are multiplexed with decodes", "Start it without --enable-pdmux."),
    Rule(_is_set("dllm_algorithm"), "bad", "the model is a diffusion model", "Serve an autoregressive model."),
    Rule(
        _is_set("disaggregation_mode"), "bad", "prefill and decode are disaggregated",
        "Start it without --disaggregation-mode.",
    ),
    Rule(
        _replays_prefills, "warn", "prefills may be replayed from CUDA graphs, and a replayed one shows no states",
        "Start it with --disable-cuda-graph; graphs serve decoding, of which there is none here.",
    ),
    Rule(
        _small("chunked_prefill_size"), "warn", "prefills are cut into small chunks, which leaves the GPU idle",
        "Raise --chunked-prefill-size to 8192 or so.",
    ),
    Rule(
        _small("max_prefill_tokens"), "warn", "prefill batches are small, which leaves the GPU idle",
        "Raise --max-prefill-tokens to 16384 or so.",
    ),
)  # fmt: skip


def check_settings(info: dict[str, Any]) -> Iterator[Check]:
    """info: the server's ``/server_info``; foreign input."""
    found = [rule for rule in RULES if rule.found(info)]
    for rule in found:
        yield Check("engine", rule.verdict, rule.text, rule.do)
    if not found:
        yield Check("engine", "ok", "no setting breaks capture or slows it down")


def check_engine(url: str, dump_dir: Path, run: RunInfo | None) -> Iterator[Check]:
    """run: that it should fit, if any."""
    from hsworker import pinning
    from hsworker.engine import EngineClient

    client = EngineClient(url)
    try:
        info = client.server_info()
        # Said first: it may be why the rest fails.
        yield from check_settings(info)
        card = pinning.require_card(client, dump_dir)
        yield Check("engine", "ok", f"{card.server} at {url} serves {card.model}")
        pinning.check_engine(client, card)
        pinning.probe(client, dump_dir, card)
        yield Check("engine", "ok", f"a probe's dump came through {dump_dir} and matched")
        yield Check(
            "engine", "ok",
            f"layers {list(card.layers)} (asked {list(card.layers_asked)}, held {list(card.layers_held)}), "
            f"norm {card.norm}, {card.dtype}, up to {card.context_length} tokens",
        )  # fmt: skip
        if run is not None:
            yield from check_fit(card, run)
    except HsqueueError as error:
        yield Check.of("engine", error)


def check_fit(card: EngineCard, run: RunInfo) -> Iterator[Check]:
    different = run.fingerprint.target.differences(card.target)
    listed = "; ".join(f"{name}: the run needs {a}, the engine is {b}" for name, (a, b) in different.items())
    yield Check.judge(
        "engine", listed or f"it fits run {run.run}", "bad" if different else None,
        "Start the engine with what the run needs, or plan a run for this engine.",
    )  # fmt: skip
    longest = run.fingerprint.max_length
    yield Check.judge(
        "engine", f"it accepts {card.context_length} tokens, the run was planned for up to {longest}",
        "warn" if longest > card.context_length else None,
        "Start it with a longer --context-length; what is longer than it accepts is skipped.",
    )  # fmt: skip
