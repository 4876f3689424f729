from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hscapture.sglang.hookpoints import BATCH, LOGITS, PROCESS_RESULT, HookPoint, moved


@dataclass
class Batch:
    reqs: list[Any]
    extend_lens: list[int]
    prefix_lens: list[int]
    forward_mode: object


def process(self: Any, batch: Any, result: Any, more: Any = None) -> None: ...


def resolver(places: dict[str, Any]) -> Any:
    def resolve(target: str) -> Any:
        try:
            return places[target]
        except KeyError:
            raise AttributeError(target) from None

    return resolve


def test_more_parameters_than_known_are_no_matter() -> None:
    assert moved(resolver({PROCESS_RESULT.target: process, BATCH: Batch}), [PROCESS_RESULT]) == []


def test_each_difference_is_named() -> None:
    found = dict(moved(resolver({PROCESS_RESULT.target: lambda self, outcome: None}), [PROCESS_RESULT, LOGITS]))
    assert "takes (self, outcome), not (self, batch, result)" in found[PROCESS_RESULT.target]
    assert "is gone" in found[LOGITS.target]
    assert "is gone" in found[BATCH]


def test_a_batch_without_its_lists_is_a_difference() -> None:
    assert moved(resolver({BATCH: HookPoint}), []) == [
        (BATCH, f"{BATCH} has no reqs, extend_lens, prefix_lens, forward_mode")
    ]
