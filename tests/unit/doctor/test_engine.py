from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hscapture.sglang.fitness import RULES as REFUSED
from hsqueue.doctor.engine import RULES, check_fit, check_settings
from tests.support.fakeengine import CARD
from tests.support.volume import make_volume

PLAIN: dict[str, Any] = {
    "speculative_algorithm": None, "pp_size": 1, "attn_cp_size": 1, "enable_pdmux": False, "dllm_algorithm": None,
    "disaggregation_mode": "null", "disable_cuda_graph": True, "disable_piecewise_cuda_graph": False,
    "chunked_prefill_size": 8192, "max_prefill_tokens": 16384,
}  # fmt: skip
"""Of a server that is started as the page on capture says."""


def test_a_server_as_it_should_be() -> None:
    for info in (PLAIN, {}, {**PLAIN, "chunked_prefill_size": -1}):
        (found,) = check_settings(info)
        assert found.verdict == "ok"


@pytest.mark.parametrize(
    ("change", "verdict", "words"),
    [
        ({"speculative_algorithm": "EAGLE3"}, "bad", "speculative"),
        ({"pp_size": 2}, "bad", "pipeline"),
        ({"attn_cp_size": 2}, "bad", "context parallelism"),
        ({"enable_pdmux": True}, "bad", "multiplexed"),
        ({"dllm_algorithm": "LowConfidence"}, "bad", "diffusion"),
        ({"disaggregation_mode": "prefill"}, "bad", "disaggregated"),
        ({"disable_cuda_graph": False}, "warn", "CUDA graphs"),
        ({"chunked_prefill_size": 512}, "warn", "small chunks"),
        ({"max_prefill_tokens": 1024}, "warn", "batches are small"),
    ],
)
def test_a_setting_that_hinders_is_named_with_what_to_do(change: dict[str, Any], verdict: str, words: str) -> None:
    (found,) = check_settings({**PLAIN, **change})
    assert (found.verdict, words in found.text, bool(found.do)) == (verdict, True, True)


def test_graphs_of_decoding_alone_hinder_nothing() -> None:
    (found,) = check_settings({**PLAIN, "disable_cuda_graph": False, "disable_piecewise_cuda_graph": True})
    assert found.verdict == "ok"


@pytest.mark.parametrize("odd", [None, "x", [], {}, True, 1.5, "8192"])
def test_odd_values_are_no_setting(odd: object) -> None:
    names = ("pp_size", "attn_cp_size", "chunked_prefill_size", "max_prefill_tokens")
    (found,) = check_settings({**PLAIN, **dict.fromkeys(names, odd)})
    assert found.verdict == "ok"


def test_whatever_the_plugin_refuses_the_doctor_names() -> None:
    assert sum(rule.verdict == "bad" for rule in RULES) == len(REFUSED)


def test_an_engine_is_held_against_the_run(tmp_path: Path) -> None:
    info = make_volume(tmp_path / "run", (5,), 1).info
    card = replace(CARD, context_length=info.fingerprint.max_length)
    assert [check.verdict for check in check_fit(card, info)] == ["ok", "ok"]
    target, length = check_fit(replace(card, norm="pre", context_length=100), info)
    assert (target.verdict, "norm" in target.text) == ("bad", True)
    assert (length.verdict, "accepts 100 tokens, the run was planned for up to 4096" in length.text) == ("warn", True)
