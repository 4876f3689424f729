"""The checks above find an error of one: in the rows, in the layers, in the norm."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hsqueue.contracts.errors import DumpMismatch
from tests.sglang import models
from tests.sglang.mutant import VARIABLE
from tests.sglang.probe import Prober, prompt
from tests.sglang.server import Server, sglang_server
from tests.sglang.traffic import other_client, traffic

Model = Callable[[Callable[[], Any]], Path]


@pytest.fixture(scope="module")
def damage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that says which damage is done."""
    path = tmp_path_factory.mktemp("mutant") / "chosen"
    path.write_text("none")
    return path


@pytest.fixture(scope="module")
def server(model: Model, damage: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {VARIABLE: str(damage)}
    with sglang_server(model(models.llama), tmp_path_factory.mktemp("server"), settings=settings, mutant=True) as one:
        yield one


@pytest.fixture(scope="module")
def prober(server: Server) -> Prober:
    return Prober(server)


def test_the_undamaged_plugin_passes(prober: Prober) -> None:
    assert prober.compare(prompt(0, 20)).within_bars()


def test_rows_off_by_one_are_refused_by_the_worker(prober: Prober, damage: Path) -> None:
    damage.write_text("rows")
    with pytest.raises(DumpMismatch, match="token ids differ"):
        prober.compare(prompt(0, 20))


def test_offsets_that_skip_other_requests_are_refused_by_the_worker(
    server: Server, prober: Prober, damage: Path
) -> None:
    damage.write_text("skip-others")
    refused = threading.Event()
    with traffic(server.url, **{f"other{k}": (other_client, 50.0) for k in range(4)}):  # type: ignore[arg-type]
        for seed in range(200):
            try:
                prober.fetch(prompt(seed, 20))
            except DumpMismatch:
                refused.set()
                break
    assert refused.is_set(), "no prompt was computed together with another's"


def test_states_off_by_one_beside_right_ids_are_seen(prober: Prober, damage: Path) -> None:
    damage.write_text("states")
    found = prober.compare(prompt(0, 20))
    assert found.ids
    assert not found.within_bars()


def test_a_state_normalised_once_too_often_is_seen(prober: Prober, damage: Path) -> None:
    damage.write_text("norm")
    found = prober.compare(prompt(0, 20))
    assert found.aux == 0.0
    assert not found.within_bars()


def test_layers_off_by_one_are_seen(model: Model, tmp_path: Path) -> None:
    damage = tmp_path / "chosen"
    damage.write_text("layers")
    with sglang_server(model(models.llama), tmp_path, settings={VARIABLE: str(damage)}, mutant=True) as server:
        found = Prober(server).compare(prompt(0, 20))
    assert found.last == 0.0
    assert not found.within_bars()
