from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hscapture.rows import Extend
from hsengine.request import Request


def test_keys_and_values_are_kept_only_where_something_looks_back() -> None:
    assert Request("a", [1, 2, 3]).past_for(3) is None
    chunked = Request("a", [1, 2, 3]).past_for(2)
    assert chunked is not None
    assert chunked.capacity == 3
    decoding = Request("a", [1, 2, 3], max_new_tokens=4).past_for(3)
    assert decoding is not None
    assert decoding.capacity == 7


@given(st.integers(1, 20), st.integers(0, 19), st.lists(st.integers(1, 20), min_size=20))
def test_cached_rows_belong_to_nobody_and_the_others_to_the_request(tokens: int, cached: int, sizes: list[int]) -> None:
    request = Request("a", list(range(tokens)), wants_capture=True, cached=min(cached, tokens - 1))
    shown: list[Extend] = []
    for size in sizes:
        rows = min(size, request.remaining)
        if not rows:
            break
        extends = request.extends(rows)
        assert sum(extend.extend_len for extend in extends) == rows
        assert all(not extend.wants_capture for extend in extends if not extend.rid)
        shown += [extend for extend in extends if extend.rid]
        request.computed += rows
    position = request.cached
    for extend in shown:
        assert (extend.prefix_len, extend.wants_capture) == (position, True)
        position += extend.extend_len
    assert position == tokens
    assert [extend.is_last_chunk for extend in shown] == [False] * (len(shown) - 1) + [True]
