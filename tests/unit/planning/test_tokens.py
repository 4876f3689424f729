"""Token ids and loss masks by a real tokenizer and real templates."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hsqueue.contracts.errors import DependencyMissing, UsageError
from hsqueue.planning.records import Conversation, Message, Text, Tokens
from hsqueue.planning.rejects import Reason, Reject
from hsqueue.planning.tokens import NO_TEMPLATE, Tokenizer

MakeDirectory = Callable[[str | None], Path]

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
TAGGED = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' }}"
    "{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] + '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ m['content'] + '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}"
)
REASONING = """
{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\\n' }}
{%- if m.role == 'assistant' %}
  {%- set said = m.content.split('</think>')[-1].lstrip('\\n') %}
  {%- set thought = '' %}
  {%- if '</think>' in m.content %}
    {%- set thought = m.content.split('</think>')[0].split('<think>')[-1].strip('\\n') %}
  {%- endif %}
  {%- if loop.index0 > ns.last %}{{- '<think>\\n' + thought + '\\n</think>\\n\\n' }}{% endif %}
  {{- said }}
{%- else %}{{- m.content }}{% endif %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"""
WITH_BOS = "{{ bos_token }}" + CHATML
PLAIN = (
    "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def talk(*contents: str) -> Conversation:
    return Conversation([{"role": "assistant" if i % 2 else "user", "content": c} for i, c in enumerate(contents)])


def decode(tokenizer: Tokenizer, tokens: Tokens | Reject, value: int | None = None) -> str:
    """Text of all tokens, or of those whose loss mask is `value`."""
    assert isinstance(tokens, Tokens), tokens
    assert len(tokens.input_ids) == len(tokens.loss_mask)
    pairs = zip(tokens.input_ids, tokens.loss_mask, strict=True)
    return str(tokenizer._tokenizer.decode([i for i, bit in pairs if value is None or bit == value]))


THOUGHT = "<think>\nwell\n</think>\n\n"


@pytest.mark.parametrize(
    ("template", "conversation", "supervised"),
    [
        (CHATML, talk("ask the fox", "it answers", "and?", "né 狐"), "it answers<|im_end|>né 狐<|im_end|>"),
        (TAGGED, talk("ask the fox", "it answers", "and?", "né 狐"), "it answers<|im_end|>né 狐<|im_end|>"),
        (PLAIN, talk("ask", "it answers", "and?", "yes"), "it answers\nyes\n"),
        (REASONING, talk("ask", f"{THOUGHT}4", "4", f"{THOUGHT}4"), f"4<|im_end|>{THOUGHT}4<|im_end|>"),
        (REASONING, talk("ask", "4", "and?"), "4<|im_end|>"),
        (CHATML, talk("nobody answers"), ""),
        (TAGGED, talk("nobody answers"), ""),
    ],
)
def test_the_mask_is_on_what_the_assistant_said(
    tokenizer_directory: MakeDirectory, template: str, conversation: Conversation, supervised: str
) -> None:
    tokenizer = Tokenizer.load(tokenizer_directory(template))
    [tokens] = tokenizer.encode([conversation])
    assert decode(tokenizer, tokens, 1) == supervised
    rendered = tokenizer._tokenizer.apply_chat_template(conversation.messages, tokenize=False)
    assert decode(tokenizer, tokens) == rendered


def test_one_bos_whoever_writes_it(tokenizer_directory: MakeDirectory) -> None:
    tokenizer = Tokenizer.load(tokenizer_directory(WITH_BOS))
    found = tokenizer.encode([talk("q", "a"), Text("a fox"), Text("<s>a fox")])
    assert [list(t.input_ids).count(0) for t in found if isinstance(t, Tokens)] == [1, 1, 1]
    assert decode(tokenizer, found[1]) == decode(tokenizer, found[2]) == "<s>a fox"


def test_a_text_is_supervised_everywhere(tokenizer_directory: MakeDirectory) -> None:
    [tokens] = Tokenizer.load(tokenizer_directory(None)).encode([Text("the quick fox")])
    assert isinstance(tokens, Tokens)
    assert tokens.loss_mask == b"\1" * len(tokens.input_ids)


def test_order_is_kept_across_forms_and_failures(tokenizer_directory: MakeDirectory) -> None:
    tokenizer = Tokenizer.load(tokenizer_directory(CHATML))
    broken = Conversation([{"role": "user", "content": "x", "name": "n"}, {"role": "user"}])
    bodies: list[Conversation | Text] = [talk("q", "one"), Text("two"), broken, talk("q", "three"), Text("four")]
    found = tokenizer.encode(bodies)
    assert isinstance(found[2], Reject)
    assert found[2].reason is Reason.TEMPLATE_FAILED
    assert [decode(tokenizer, found[i], 1) for i in (0, 1, 3, 4)] == [
        "one<|im_end|>", "<s>two", "three<|im_end|>", "<s>four",
    ]  # fmt: skip


@pytest.mark.parametrize("tags", ["", "{% generation %}{% endgeneration %}"])
def test_a_template_that_raises_costs_only_its_conversation(tokenizer_directory: MakeDirectory, tags: str) -> None:
    refusing = "{% if messages|length > 2 %}{{ raise_exception('too many') }}{% endif %}" + CHATML + tags
    found = Tokenizer.load(tokenizer_directory(refusing)).encode([talk("a", "b"), talk("a", "b", "c"), talk("a")])
    assert [isinstance(one, Reject) for one in found] == [False, True, False]
    assert isinstance(found[1], Reject)
    assert found[1].reason is Reason.TEMPLATE_FAILED
    assert "too many" in found[1].detail


def test_text_without_a_unicode_form_costs_only_its_conversation(tokenizer_directory: MakeDirectory) -> None:
    template = CHATML + "{{ messages[0].name }}"
    bad: list[Message] = [{"role": "user", "content": "a", "name": "\ud800"}]
    found = Tokenizer.load(tokenizer_directory(template)).encode([talk("a"), Conversation(bad), talk("b")])
    assert [isinstance(one, Reject) for one in found] == [False, True, False]
    assert isinstance(found[1], Reject)
    assert found[1].reason is Reason.TOKENIZER_FAILED


@pytest.mark.parametrize("tags", ["", "{% generation %}{% endgeneration %}"])
def test_tools_reach_the_template(tokenizer_directory: MakeDirectory, tags: str) -> None:
    tokenizer = Tokenizer.load(tokenizer_directory("{{ tools[0].name if tools else 'none' }}" + CHATML + tags))
    with_tools = Conversation(talk("q").messages, [{"name": "search"}])
    found = [decode(tokenizer, one) for one in tokenizer.encode([talk("q"), with_tools, talk("q")])]
    assert [text.split("<")[0] for text in found] == ["none", "search", "none"]


def test_a_conversation_needs_a_template(tokenizer_directory: MakeDirectory) -> None:
    tokenizer = Tokenizer.load(tokenizer_directory(None))
    assert tokenizer.template_digest == NO_TEMPLATE
    with pytest.raises(UsageError, match="--chat-template"):
        tokenizer.encode([talk("q", "a")])


def test_a_template_can_be_given_and_changes_the_digest(tokenizer_directory: MakeDirectory, tmp_path: Path) -> None:
    directory, own = tokenizer_directory(CHATML), tmp_path / "own.jinja"
    own.write_text(PLAIN, encoding="utf-8")
    default, given = Tokenizer.load(directory), Tokenizer.load(directory, own)
    assert decode(given, given.encode([talk("q", "a")])[0]) == "user: q\nassistant: a\n"
    assert default.digest == given.digest
    assert default.template_digest != given.template_digest


def test_another_vocabulary_is_another_digest(tokenizer_directory: MakeDirectory) -> None:
    directory = tokenizer_directory(CHATML)
    before = Tokenizer.load(directory).digest
    file = directory / "tokenizer.json"
    table: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    table["model"]["merges"].pop()
    file.write_text(json.dumps(table), encoding="utf-8")
    assert Tokenizer.load(directory).digest != before


def test_saved_truncation_and_padding_cut_nothing(tokenizer_directory: MakeDirectory) -> None:
    directory = tokenizer_directory(CHATML)
    file = directory / "tokenizer.json"
    table: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    table["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    table["padding"] = {
        "strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None,
        "pad_id": 0, "pad_type_id": 0, "pad_token": "<s>",
    }  # fmt: skip
    file.write_text(json.dumps(table), encoding="utf-8")
    tokenizer = Tokenizer.load(directory)
    text = "the quick brown fox asks and the assistant answers at length"
    assert decode(tokenizer, tokenizer.encode([Text(text)])[0]) == "<s>" + text


@pytest.mark.parametrize("template", ["{% if %}", "{% for m in messages %}"])
def test_a_template_that_is_no_jinja_is_refused_at_once(tokenizer_directory: MakeDirectory, template: str) -> None:
    with pytest.raises(UsageError, match="no valid Jinja"):
        Tokenizer.load(tokenizer_directory(template))


def test_directories_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--tokenizer"):
        Tokenizer.load(tmp_path / "missing")
    with pytest.raises(UsageError, match="no tokenizer that can be loaded"):
        Tokenizer.load(tmp_path)


def test_a_missing_template_file(tokenizer_directory: MakeDirectory, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        Tokenizer.load(tokenizer_directory(None), tmp_path / "missing.jinja")


def test_without_transformers_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "transformers":
            raise ImportError("No module named 'transformers'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DependencyMissing, match=r"pip install 'hsqueue\[plan\]'"):
        Tokenizer.load(tmp_path)
