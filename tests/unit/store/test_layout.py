from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from hsqueue.store.layout import RunLayout

LAYOUT = RunLayout(Path("RUN"))
SHARDS = st.integers(0, 999_999)


def test_names_come_from_indices() -> None:
    assert LAYOUT.sample(123, 31488) == Path("RUN/samples/000/000123/000000031488.safetensors")
    assert LAYOUT.manifest(1123) == Path("RUN/manifests/001/shard-001123.json")
    assert LAYOUT.plan_shard(1123) == Path("RUN/plan/001/shard-001123.parquet")


@given(SHARDS, SHARDS)
def test_different_shards_never_share_a_name(one: int, other: int) -> None:
    for name in (LAYOUT.shard_directory, LAYOUT.manifest, LAYOUT.plan_shard):
        assert (name(one) == name(other)) == (one == other)


@given(SHARDS)
def test_at_most_a_thousand_shards_share_a_directory(shard: int) -> None:
    first = shard // 1000 * 1000
    assert LAYOUT.manifest(shard).parent == LAYOUT.manifest(first).parent
    assert LAYOUT.manifest(first + 1000).parent != LAYOUT.manifest(first).parent
