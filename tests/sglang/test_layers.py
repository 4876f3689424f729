"""Layers and norms other than the default, each against transformers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hsqueue.contracts.layers import eagle3_layers
from tests.sglang import models
from tests.sglang.probe import AUX_BAR, LAST_BAR, Prober, prompt
from tests.sglang.server import sglang_server

RELATIVE_BAR = AUX_BAR / 110
"""Of a layer's greatest value. The absolute bar is for EAGLE-3's layers, which reach 110; later ones reach more."""

Model = Callable[[Callable[[], Any]], Path]


@pytest.mark.parametrize(
    ("build", "layers", "norm", "expected", "held"),
    [
        (models.llama, "all", "both", tuple(range(9)), tuple(range(1, 8))),
        (models.qwen3, "1,3,8", "pre", (1, 3, 8), (1, 3)),
    ],
    ids=["all-both", "explicit-pre"],
)
def test_layers_and_norms(
    model: Model,
    tmp_path: Path,
    build: Callable[[], Any],
    layers: str,
    norm: str,
    expected: tuple[int, ...],
    held: tuple[int, ...],
) -> None:
    settings = {"HSQ_LAYERS": layers, "HSQ_NORM": norm}
    with sglang_server(model(build), tmp_path, "--chunked-prefill-size", "64", settings=settings) as server:
        prober = Prober(server)
        assert (prober.card.layers, prober.card.layers_held, prober.card.norm) == (expected, held, norm)
        lone = prober.compare(prompt(0, 40))
        assert (lone.aux, lone.last, lone.prenorm) == (0.0, 0.0, 0.0)
        found = prober.compare_all([prompt(k, 10 + 20 * k) for k in range(12)], in_flight=12)
        assert all(one.ids for one in found)
        assert max(one.relative for one in found) <= RELATIVE_BAR
        usual = [expected.index(k) for k in eagle3_layers(models.LAYERS) if k in expected]
        assert all(one.layers[k] <= AUX_BAR for one in found for k in usual)
        assert max(one.last for one in found) <= LAST_BAR
        assert server.complaints() == []
