"""Skips these tests where there is no SGLang; makes each model once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.sglang import models
from tests.sglang.server import PYTHON_VARIABLE


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.sglang)
            item.add_marker(pytest.mark.timeout(900))
            if PYTHON_VARIABLE not in os.environ:
                item.add_marker(pytest.mark.skip(reason=f"{PYTHON_VARIABLE} is not set: make test-sglang"))


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[], Any]], Path]:
    """Makes a model of ``tests.sglang.models`` and returns its directory."""
    made: dict[str, Path] = {}

    def get(build: Callable[[], Any]) -> Path:
        name = build.__name__
        if name not in made:
            made[name] = models.make(build, tmp_path_factory.mktemp(name))
        return made[name]

    return get
