from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hsqueue.contracts.fingerprint import RunInfo
from hsqueue.doctor.redis import check_clock, check_eviction, check_memory, check_persistence, check_version
from tests.support.volume import make_volume

GIB = 1 << 30


@pytest.fixture
def run(tmp_path: Path) -> RunInfo:
    """A hundred million samples in two hundred thousand shards."""
    return replace(make_volume(tmp_path / "run", (5,), 1).info, samples=10**8, shards=200_000)


@pytest.mark.parametrize(
    ("info", "verdict"),
    [
        ({"used_memory": GIB, "maxmemory": 4 * GIB}, "ok"),
        ({"used_memory": GIB, "maxmemory": 0, "total_system_memory": 8 * GIB}, "ok"),
        ({"used_memory": 7 * GIB, "maxmemory": 0, "total_system_memory": 8 * GIB}, "warn"),
        ({"used_memory": int(1.8 * GIB), "maxmemory": 2 * GIB}, "bad"),
        ({}, "ok"),
    ],
)
def test_memory_is_held_against_the_run(run: RunInfo, info: dict[str, Any], verdict: str) -> None:
    found = check_memory(info, run)
    assert found.verdict == verdict
    assert bool(found.do) == (verdict != "ok")
    assert "100,000,000 samples in 200,000 shards take up to 486.0 MiB" in found.text


def test_without_a_run_memory_is_held_against_itself() -> None:
    assert check_memory({"used_memory": 3 * GIB, "maxmemory": 4 * GIB}, None).verdict == "ok"
    assert check_memory({"used_memory": int(3.5 * GIB), "maxmemory": 4 * GIB}, None).verdict == "warn"


@pytest.mark.parametrize(
    ("before", "there", "after", "words"),
    [
        (100.0, 100.01, 100.02, "this host's clock is Redis'"),
        (100.0, 105.0, 100.02, "5.0 s behind"),
        (100.0, 95.0, 100.02, "5.0 s ahead of"),
        (100.0, 101.5, 104.0, "this host's clock is Redis'"),  # a slow answer proves nothing
        (100.0, 108.0, 104.0, "6.0 s behind"),
    ],
)
def test_clocks(before: float, there: float, after: float, words: str) -> None:
    found = check_clock(before, there, after)
    assert words in found.text
    assert found.verdict == ("ok" if "is Redis'" in words else "warn")
    assert ("NTP" in found.do) == (found.verdict == "warn")


def test_version_persistence_and_eviction() -> None:
    assert [check_version("r", {"redis_version": v}).verdict for v in ("6.0.9", "6.2.0", "7.4.1", "10.0")] == [
        "bad", "ok", "ok", "ok",
    ]  # fmt: skip
    assert [check_persistence({"aof_enabled": on}).verdict for on in (0, 1)] == ["warn", "ok"]
    policies = [("allkeys-lru", GIB), ("allkeys-lru", 0), ("noeviction", GIB)]
    found = [check_eviction({"maxmemory_policy": policy, "maxmemory": most}).verdict for policy, most in policies]
    assert found == ["bad", "ok", "ok"]
