from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsqueue.contracts.dump import expected_tensors
from hsqueue.contracts.target import DTYPES, NORMS, Target
from hsqueue.contracts.tensorfile import layout
from tests.support.volume import TARGET

CHANGES: dict[str, object] = {
    "weights": "f" * 16, "layers": (2, 4, 6), "norm": "pre", "dtype": "float16", "hidden_size": 16, "vocab_size": 7,
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_engines_that_make_other_states_have_another_queue(name: str) -> None:
    assert replace(TARGET, **{name: CHANGES[name]}).queue != TARGET.queue  # type: ignore[arg-type]


@pytest.mark.parametrize("model", ["/mnt/a/tiny", "/mnt/b/other/", "", "模型", "a/{b} c*d"])
def test_nodes_that_mount_the_model_elsewhere_share_one_queue(model: str) -> None:
    assert replace(TARGET, model=model).queue == TARGET.queue


@given(st.sampled_from(NORMS), st.sampled_from(DTYPES), st.integers(1, 100), st.integers(1, 10**6))
def test_a_queues_name_is_short_and_safe(norm: str, dtype: str, layers: int, hidden: int) -> None:
    target = replace(TARGET, norm=norm, dtype=dtype, layers=tuple(range(layers)), hidden_size=hidden)
    assert re.fullmatch(r"hsq\.[a-z0-9-]{1,40}\.[0-9a-f]{10}", target.queue)


@given(
    layers=st.integers(1, 40), norm=st.sampled_from(["post", "pre", "both"]),
    dtype=st.sampled_from(["bfloat16", "float16", "float32"]), hidden=st.integers(1, 8192), tokens=st.integers(1, 99),
)  # fmt: skip
def test_the_bytes_of_a_token_are_those_of_the_published_file(
    layers: int, norm: str, dtype: str, hidden: int, tokens: int
) -> None:
    target = Target("m", "w", tuple(range(layers)), norm, dtype, hidden, 10)
    dump = layout(expected_tensors(tokens, layers, hidden, norm, dtype))
    assert target.bytes_per_token * tokens == dump[-1].end + tokens


def test_differences_leave_the_models_path_out() -> None:
    other = replace(TARGET, model="elsewhere", norm="both", vocab_size=7)
    assert TARGET.differences(other) == {"norm": ("post", "both"), "vocab_size": (1000, 7)}
