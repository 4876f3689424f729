from __future__ import annotations

from types import SimpleNamespace

import pytest

from hscapture.sglang.fitness import require_fit
from hsqueue.contracts.errors import EngineUnfit

MODEL = SimpleNamespace(is_generation=True)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("speculative_algorithm", "EAGLE3", "without --speculative-algorithm"),
        ("pp_size", 2, "--pp-size"),
        ("attn_cp_size", 2, "reorders rows"),
        ("enable_pdmux", True, "--enable-pdmux"),
        ("dllm_algorithm", "LowConfidence", "autoregressive"),
        ("disaggregation_mode", "prefill", "--disaggregation-mode"),
    ],
)
def test_what_could_mix_rows_is_refused_by_name(option: str, value: object, said: str) -> None:
    with pytest.raises(EngineUnfit, match=said):
        require_fit(SimpleNamespace(**{option: value}), MODEL)


def test_an_ordinary_server_is_fit() -> None:
    arguments = {"speculative_algorithm": None, "pp_size": 1, "tp_size": 8, "dp_size": 2, "disaggregation_mode": "null"}
    require_fit(SimpleNamespace(**arguments), MODEL)
    require_fit(SimpleNamespace(), MODEL)


def test_an_embedding_model_is_refused() -> None:
    with pytest.raises(EngineUnfit, match="does not generate"):
        require_fit(SimpleNamespace(), SimpleNamespace(is_generation=False))
