"""What one record of a prompt file says, in one of three forms. Pure: nothing here reads or tokenises.

================================================= ==================================================
``conversations``, ``messages``, ``conversation`` a list of ``role``/``content`` (OpenAI) or
                                                  ``from``/``value`` (ShareGPT); ``tools`` and
                                                  ``system`` beside it are taken along
``input_ids``, ``loss_mask``                      token ids, supervised everywhere without a mask
``text``, ``prompt``                              text as it stands, supervised everywhere
================================================= ==================================================
"""

from __future__ import annotations

import array
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hsqueue.planning.rejects import Reason, Reject

Message = dict[str, object]
"""``role``, ``content`` (a string) and the keys of PASSED_ON that were there: what chat templates take."""

ID_KEYS = ("id", "conversation_id", "uuid")
CONVERSATION_KEYS = ("conversations", "messages", "conversation")
TEXT_KEYS = ("text", "prompt")
ANSWER_KEYS = ("completion", "response", "answer")
PASSED_ON = ("tool_calls", "tool_call_id", "name", "reasoning_content", "thinking")
KEYS = frozenset((*ID_KEYS, *CONVERSATION_KEYS, *TEXT_KEYS, *ANSWER_KEYS, "tools", "system", "input_ids", "loss_mask"))
"""Every key that is looked at; other columns need not be read."""

ROLES: Mapping[str, str] = {
    "user": "user", "human": "user",
    "assistant": "assistant", "gpt": "assistant", "chatgpt": "assistant", "bing": "assistant",
    "bard": "assistant", "model": "assistant", "function_call": "assistant",
    "system": "system", "developer": "system",
    "tool": "tool", "function": "tool", "observation": "tool",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Conversation:
    """messages: at least one. tools: JSON schemas for the chat template, or None."""

    messages: list[Message]
    tools: list[object] | None = None


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Tokens:
    """input_ids: [S], S > 0. loss_mask: bytes of 0 and 1 [S]."""

    input_ids: array.array[int]
    loss_mask: bytes


Body = Conversation | Text | Tokens


class _Unusable(Exception):
    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reject = Reject(reason, detail)


def record_id(record: Mapping[str, object]) -> str | Reject:
    """The record's own id: the first of ID_KEYS that is not null, a string or an integer."""
    for key in ID_KEYS:
        value = record.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            return Reject(Reason.UNUSABLE_ID, f"{key} is {str(value)[:40]!r}; a string or an integer is needed")
        if isinstance(value, str) and not is_encodable(value):
            return Reject(Reason.UNUSABLE_ID, f"{key} holds half of a surrogate pair")
        return str(value)
    return Reject(Reason.MISSING_ID, f"none of {', '.join(ID_KEYS)}; --ids line makes ids of file and line")


def parse_body(record: Mapping[str, object]) -> Body | Reject:
    """The record's form. Where it has several, token ids win over a conversation, and that over text."""
    try:
        if record.get("input_ids") is not None:
            return _tokens(record)
        for key in CONVERSATION_KEYS:
            if record.get(key) is not None:
                return _conversation(record, key)
        for key in TEXT_KEYS:
            if record.get(key) is not None:
                return _text(record, key)
    except _Unusable as unusable:
        return unusable.reject
    keys = ", ".join(sorted(map(str, record)))[:120] or "none"
    return Reject(Reason.UNKNOWN_FORM, f"needs conversations, messages, text, prompt or input_ids; its keys are {keys}")


def is_encodable(text: str) -> bool:
    """Whether `text` has a UTF-8 form; JSON can spell half of a surrogate pair, which has none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _conversation(record: Mapping[str, object], key: str) -> Conversation:
    listed = record[key]
    if not isinstance(listed, list):
        raise _Unusable(Reason.UNKNOWN_FORM, f"{key} is a {type(listed).__name__}; a list of messages is needed")
    messages = [_message(number, message) for number, message in enumerate(listed, 1)]
    if not any(message["content"] or message.get("tool_calls") for message in messages):
        raise _Unusable(Reason.EMPTY, f"{key} holds no content")
    system = record.get("system")
    if isinstance(system, str) and system and messages[0]["role"] != "system":
        messages.insert(0, {"role": "system", "content": _checked(system, "system")})
    return Conversation(messages, _tools(record.get("tools")))


def _message(number: int, message: object) -> Message:
    if not isinstance(message, Mapping):
        raise _Unusable(Reason.UNKNOWN_FORM, f"message {number} is a {type(message).__name__}; an object is needed")
    said = _first(message, "role", "from")
    role = ROLES.get(said.strip().lower()) if isinstance(said, str) else None
    if role is None:
        raise _Unusable(Reason.UNKNOWN_ROLE, f"message {number} has role {str(said)[:40]!r}")
    found: Message = {key: message[key] for key in PASSED_ON if message.get(key) is not None}
    if isinstance(calls := found.get("tool_calls"), list):
        found["tool_calls"] = [_tool_call(call) for call in calls]
    content = _first(message, "content", "value")
    if content is None and "tool_calls" in found:
        content = ""
    return {"role": role, "content": _content(content, f"message {number}"), **found}


def _first(message: Mapping[str, object], *keys: str) -> object:
    return next((message[key] for key in keys if message.get(key) is not None), None)


def _content(content: object, where: str) -> str:
    """A string, or OpenAI's list of ``{"type": "text", "text": ...}`` joined."""
    if isinstance(content, str):
        return _checked(content, where)
    if isinstance(content, list):
        return _checked("".join(_part(part, where) for part in content), where)
    raise _Unusable(Reason.UNSUPPORTED_CONTENT, f"{where} has content of type {type(content).__name__}")


def _tool_call(call: object) -> object:
    """With its arguments as an object: OpenAI's form has them as a string of JSON, chat templates expect objects."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        return call
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        return call
    try:
        return {**call, "function": {**function, "arguments": json.loads(arguments)}}
    except (ValueError, RecursionError):
        return call


def _part(part: object, where: str) -> str:
    text = part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else part
    if not isinstance(text, str):
        kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
        raise _Unusable(Reason.UNSUPPORTED_CONTENT, f"{where} has a part of type {str(kind)[:40]!r}; only text is read")
    return text


def _checked(text: str, where: str) -> str:
    if not is_encodable(text):
        raise _Unusable(Reason.BAD_UNICODE, f"{where} holds half of a surrogate pair")
    return text


def _tools(tools: object) -> list[object] | None:
    """A list of schemas; some data sets carry it as a string of JSON."""
    if isinstance(tools, str) and tools.strip():
        try:
            tools = json.loads(tools)
        except (ValueError, RecursionError) as error:
            raise _Unusable(Reason.BAD_TOOLS, f"tools is not JSON ({error})") from None
    if not tools:
        return None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise _Unusable(Reason.BAD_TOOLS, "tools is not a list of objects")
    return tools


def _text(record: Mapping[str, object], key: str) -> Text:
    text = record[key]
    if not isinstance(text, str):
        raise _Unusable(Reason.UNKNOWN_FORM, f"{key} is a {type(text).__name__}; a string is needed")
    answer = next((name for name in ANSWER_KEYS if record.get(name) is not None), None)
    if key == "prompt" and answer is not None:
        raise _Unusable(
            Reason.UNKNOWN_FORM, f"prompt with {answer} is not read; make it messages of a user and an assistant"
        )
    if not text:
        raise _Unusable(Reason.EMPTY, f"{key} is empty")
    return Text(_checked(text, key))


def _tokens(record: Mapping[str, object]) -> Tokens:
    ids = _integers(record["input_ids"], "input_ids", Reason.BAD_TOKENS, int)
    if not ids:
        raise _Unusable(Reason.EMPTY, "input_ids is empty")
    if record.get("loss_mask") is None:
        return Tokens(ids, b"\1" * len(ids))
    mask = _integers(record["loss_mask"], "loss_mask", Reason.BAD_MASK, int, bool)
    if len(mask) != len(ids):
        raise _Unusable(Reason.MASK_LENGTH, f"{len(ids)} token ids, {len(mask)} values in loss_mask")
    if min(mask) < 0 or max(mask) > 1:
        raise _Unusable(Reason.BAD_MASK, f"loss_mask holds {min(mask)} to {max(mask)}; only 0 and 1 are read")
    return Tokens(ids, bytes(mask.tolist()))


def _integers(values: object, key: str, reason: Reason, *types: Callable[..., object]) -> array.array[int]:
    if not isinstance(values, list):
        raise _Unusable(reason, f"{key} is a {type(values).__name__}; a list of integers is needed")
    wrong = set(map(type, values)).difference(types)
    if wrong:
        raise _Unusable(reason, f"{key} holds a {wrong.pop().__name__}; only integers are read")
    try:
        return array.array("q", values)
    except OverflowError:
        raise _Unusable(reason, f"{key} holds a value beyond 64 bits") from None
