"""What planning holds in memory does not grow with the records, but for their ids."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from hsqueue.contracts.target import Target
from hsqueue.planning import pipeline
from hsqueue.planning.plan import PlanOptions, make_plan
from hsqueue.planning.records import Text

BYTES_A_RECORD = 250
"""Each of few ids has a bucket of its own, of about a hundred; the tokens alone of one record here take 800."""


def peak(path: Path, root: Path, target: Target) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        make_plan([path], root, target, None, PlanOptions(max_length=200, shard_size=64))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_grows_by_ids_alone(
    write_lines: Callable[..., Path], target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "BATCH_RECORDS", 64)
    records = [{"id": f"{i % 3500}", "input_ids": [i % 500] * 100} for i in range(4000)]
    small, large = write_lines(records[:1000], "small.jsonl"), write_lines(records, "large.jsonl")
    del records
    peak(small, tmp_path / "warm", target)
    growth = peak(large, tmp_path / "large", target) - peak(small, tmp_path / "small", target)
    assert growth < 3000 * BYTES_A_RECORD


def test_a_batch_is_bounded_by_its_characters_too() -> None:
    text = pipeline.Candidate("f", 1, "a", Text("x" * (pipeline.BATCH_CHARACTERS // 2)))
    assert [len(batch) for batch in pipeline._batches([text] * 5)] == [2, 2, 1]
