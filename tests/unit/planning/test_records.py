"""What a record says, in every form that is read, and why others are refused."""

from __future__ import annotations

import array
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsqueue.planning.records import Conversation, Message, Text, Tokens, parse_body, record_id
from hsqueue.planning.rejects import Reason, Reject

USER: Message
ASSISTANT: Message
USER, ASSISTANT = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"id": "a"}, "a"),
        ({"id": 0}, "0"),
        ({"conversation_id": "c", "uuid": "u"}, "c"),
        ({"id": None, "uuid": "u"}, "u"),
    ],
)
def test_ids(record: dict[str, Any], expected: str) -> None:
    assert record_id(record) == expected


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({}, Reason.MISSING_ID),
        ({"id": None}, Reason.MISSING_ID),
        ({"id": ""}, Reason.UNUSABLE_ID),
        ({"id": True}, Reason.UNUSABLE_ID),
        ({"id": 1.5}, Reason.UNUSABLE_ID),
        ({"id": ["a"]}, Reason.UNUSABLE_ID),
        ({"id": "\ud800"}, Reason.UNUSABLE_ID),
    ],
)
def test_ids_that_are_none(record: dict[str, Any], reason: Reason) -> None:
    found = record_id(record)
    assert isinstance(found, Reject)
    assert found.reason is reason


def test_a_missing_id_says_how_to_do_without() -> None:
    found = record_id({"text": "a"})
    assert isinstance(found, Reject)
    assert "--ids line" in found.detail


@pytest.mark.parametrize("key", ["conversations", "messages", "conversation"])
@pytest.mark.parametrize(
    "messages",
    [
        [USER, ASSISTANT],
        [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}],
        [{"role": "User", "content": [{"type": "text", "text": "q"}]}, {"role": None, "from": "model", "value": "a"}],
    ],
)
def test_conversations_of_all_dialects_are_one(key: str, messages: list[Any]) -> None:
    assert parse_body({key: messages}) == Conversation([USER, ASSISTANT])


@pytest.mark.parametrize(
    ("said", "role"),
    [("system", "system"), ("developer", "system"), ("tool", "tool"), ("observation", "tool"), ("function", "tool")],
)
def test_roles_beside_the_two(said: str, role: str) -> None:
    found = parse_body({"messages": [{"from": said, "value": "x"}, USER]})
    assert isinstance(found, Conversation)
    assert found.messages[0]["role"] == role


def test_what_templates_use_beside_the_content_is_kept_and_the_rest_is_not() -> None:
    call: Message = {"role": "assistant", "content": None, "tool_calls": [{"name": "f"}], "weight": 1, "name": None}
    found = parse_body({"messages": [USER, call]})
    assert found == Conversation([USER, {"role": "assistant", "content": "", "tool_calls": [{"name": "f"}]}])


@pytest.mark.parametrize(
    ("written", "read"), [('{"city": "Bern"}', {"city": "Bern"}), ({"city": "Bern"}, {"city": "Bern"}), ("{", "{")]
)
def test_arguments_of_a_tool_call_are_objects(written: object, read: object) -> None:
    call = {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": written}}, "odd"]}
    found = parse_body({"messages": [call]})
    assert isinstance(found, Conversation)
    assert found.messages[0]["tool_calls"] == [{"id": "1", "function": {"name": "f", "arguments": read}}, "odd"]


def test_parts_of_a_content_are_joined() -> None:
    parts = [{"type": "text", "text": "one"}, " two"]
    assert parse_body({"messages": [{"role": "user", "content": parts}]}) == Conversation(
        [{"role": "user", "content": "one two"}]
    )


@pytest.mark.parametrize("tools", [[{"name": "f"}], json.dumps([{"name": "f"}])])
def test_tools_as_a_list_or_as_json(tools: object) -> None:
    assert parse_body({"messages": [USER], "tools": tools}) == Conversation([USER], [{"name": "f"}])


@pytest.mark.parametrize("tools", [None, [], "", "[]"])
def test_no_tools(tools: object) -> None:
    assert parse_body({"messages": [USER], "tools": tools}) == Conversation([USER])


def test_a_system_prompt_beside_the_conversation_comes_first_unless_there_is_one() -> None:
    system: Message = {"role": "system", "content": "s"}
    assert parse_body({"messages": [USER], "system": "s"}) == Conversation([system, USER])
    assert parse_body({"messages": [system, USER], "system": "t"}) == Conversation([system, USER])


@pytest.mark.parametrize("key", ["text", "prompt"])
def test_texts(key: str) -> None:
    assert parse_body({key: "once"}) == Text("once")


def test_token_ids() -> None:
    assert parse_body({"input_ids": [1, 2]}) == Tokens(array.array("q", [1, 2]), b"\1\1")
    assert parse_body({"input_ids": [1, 2], "loss_mask": [0, 1]}) == Tokens(array.array("q", [1, 2]), b"\0\1")
    assert parse_body({"input_ids": [1], "loss_mask": [True]}) == Tokens(array.array("q", [1]), b"\1")


def test_the_most_processed_form_wins() -> None:
    assert isinstance(parse_body({"input_ids": [1], "messages": [USER], "text": "a"}), Tokens)
    assert isinstance(parse_body({"messages": [USER], "prompt": "a"}), Conversation)
    assert parse_body({"messages": None, "text": "a"}) == Text("a")


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({}, Reason.UNKNOWN_FORM),
        ({"question": "q", "answer": "a"}, Reason.UNKNOWN_FORM),
        ({"prompt": "q", "completion": "a"}, Reason.UNKNOWN_FORM),
        ({"text": ["a"]}, Reason.UNKNOWN_FORM),
        ({"messages": {"role": ["user"]}}, Reason.UNKNOWN_FORM),
        ({"messages": ["hello"]}, Reason.UNKNOWN_FORM),
        ({"messages": [{"role": "narrator", "content": "x"}]}, Reason.UNKNOWN_ROLE),
        ({"messages": [{"content": "x"}]}, Reason.UNKNOWN_ROLE),
        ({"messages": [{"role": 3, "content": "x"}]}, Reason.UNKNOWN_ROLE),
        ({"messages": [{"role": "user"}]}, Reason.UNSUPPORTED_CONTENT),
        ({"messages": [{"role": "user", "content": 5}]}, Reason.UNSUPPORTED_CONTENT),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, Reason.UNSUPPORTED_CONTENT),
        ({"messages": [{"role": "user", "content": [3]}]}, Reason.UNSUPPORTED_CONTENT),
        ({"messages": [USER], "tools": "{"}, Reason.BAD_TOOLS),
        ({"messages": [USER], "tools": [1]}, Reason.BAD_TOOLS),
        ({"messages": [USER], "tools": {"name": "f"}}, Reason.BAD_TOOLS),
        ({"messages": [{"role": "user", "content": "\udc00"}]}, Reason.BAD_UNICODE),
        ({"text": "\udc00"}, Reason.BAD_UNICODE),
        ({"messages": []}, Reason.EMPTY),
        ({"messages": [{"role": "user", "content": ""}]}, Reason.EMPTY),
        ({"text": ""}, Reason.EMPTY),
        ({"input_ids": []}, Reason.EMPTY),
        ({"input_ids": "1 2"}, Reason.BAD_TOKENS),
        ({"input_ids": [1, 2.0]}, Reason.BAD_TOKENS),
        ({"input_ids": [True]}, Reason.BAD_TOKENS),
        ({"input_ids": [[1]]}, Reason.BAD_TOKENS),
        ({"input_ids": [None]}, Reason.BAD_TOKENS),
        ({"input_ids": [1 << 64]}, Reason.BAD_TOKENS),
        ({"input_ids": [1], "loss_mask": [1, 1]}, Reason.MASK_LENGTH),
        ({"input_ids": [1], "loss_mask": []}, Reason.MASK_LENGTH),
        ({"input_ids": [1], "loss_mask": [2]}, Reason.BAD_MASK),
        ({"input_ids": [1], "loss_mask": [-100]}, Reason.BAD_MASK),
        ({"input_ids": [1], "loss_mask": ["1"]}, Reason.BAD_MASK),
    ],
)
def test_records_that_cannot_be_used(record: dict[str, Any], reason: Reason) -> None:
    found = parse_body(record)
    assert isinstance(found, Reject), found
    assert found.reason is reason


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("a1{\ud800", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "from", "content", "value", "type", "text"]), inner, max_size=3)
    ),
    max_leaves=8,
)
KEYS = st.sampled_from(["id", "messages", "conversations", "text", "prompt", "input_ids", "loss_mask", "tools"])


@given(st.dictionaries(KEYS, JSON, max_size=4))
def test_any_record_gets_a_form_or_a_reason(record: dict[str, Any]) -> None:
    assert isinstance(parse_body(record), Conversation | Text | Tokens | Reject)
    assert isinstance(record_id(record), str | Reject)
