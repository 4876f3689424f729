from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsqueue.contracts.errors import UsageError
from hsqueue.contracts.message import ShardMessage, task_id

NUMBERS = st.integers(0, (1 << 40) - 1)
MESSAGES = st.builds(ShardMessage, st.from_regex(r"[a-z0-9][a-z0-9-]{0,31}", fullmatch=True), NUMBERS, NUMBERS)


@given(MESSAGES)
def test_a_message_comes_back_through_json(message: ShardMessage) -> None:
    assert ShardMessage.from_kwargs(json.loads(json.dumps(message.to_kwargs()))) == message


@given(MESSAGES)
def test_a_message_holds_names_and_numbers_alone(message: ShardMessage) -> None:
    assert message.to_kwargs().keys() == {"run", "shard", "n"}


def test_the_number_of_samples_may_be_left_out() -> None:
    assert ShardMessage.from_kwargs({"run": "r1", "shard": 3}) == ShardMessage("r1", 3, 0)


@pytest.mark.parametrize("run", [None, 1, "", "R1", "a/b", "../x", "r" * 33, "r1\n", b"r1", ["r1"]])
def test_an_impossible_run_is_refused(run: object) -> None:
    with pytest.raises(UsageError, match="impossible run"):
        ShardMessage.from_kwargs({"run": run, "shard": 0, "n": 1})


@pytest.mark.parametrize("value", [None, -1, 1 << 40, True, 1.0, "1", [1], float("nan")])
@pytest.mark.parametrize("name", ["shard", "n"])
def test_an_impossible_number_is_refused(name: str, value: object) -> None:
    with pytest.raises(UsageError, match="impossible shard"):
        ShardMessage.from_kwargs({"run": "r1", "shard": 0, "n": 1, name: value})


@given(st.dictionaries(st.sampled_from(["run", "shard", "n", "more"]), st.integers() | st.text() | st.none()))
def test_no_message_makes_anything_but_a_named_error(kwargs: dict[str, object]) -> None:
    try:
        found = ShardMessage.from_kwargs(kwargs)
    except UsageError:
        return
    assert (found.run, found.shard) == (kwargs["run"], kwargs["shard"])


@given(MESSAGES, MESSAGES, NUMBERS, NUMBERS)
def test_task_ids_are_the_same_for_the_same_sending_only(
    one: ShardMessage, other: ShardMessage, first: int, second: int
) -> None:
    same = (one.run, one.shard, first) == (other.run, other.shard, second)
    assert (task_id(one.run, one.shard, first) == task_id(other.run, other.shard, second)) == same
