"""Where an assistant's turns stand, for templates of several kinds, written as plain functions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsqueue.planning.masks import PLACEHOLDER, Render, Span, assistant_spans, token_mask
from hsqueue.planning.records import Message
from hsqueue.planning.rejects import Reason, Reject

SPECIAL = ("<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|end|>", "<|return|>", "<|user|>")


def chatml(messages: Sequence[Message], add_generation_prompt: bool) -> str:
    text = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
    return text + ("<|im_start|>assistant\n" if add_generation_prompt else "")


def reasoning(messages: Sequence[Message], add_generation_prompt: bool) -> str:
    """Qwen3's way: turns before the last question lose their reasoning, later ones get an empty one."""
    last_question = max((i for i, m in enumerate(messages) if m["role"] == "user"), default=-1)
    text = ""
    for i, message in enumerate(messages):
        content = str(message["content"])
        if message["role"] == "assistant":
            thought, _, said = content.rpartition("</think>")
            thought, content = thought.removeprefix("<think>").strip("\n"), said.lstrip("\n")
            if i > last_question:
                content = f"<think>\n{thought}\n</think>\n\n{content}"
        text += f"<|im_start|>{message['role']}\n{content}<|im_end|>\n"
    return text + ("<|im_start|>assistant\n" if add_generation_prompt else "")


def harmony(messages: Sequence[Message], add_generation_prompt: bool) -> str:
    """gpt-oss's way: only the last turn ends with ``<|return|>``."""
    text = ""
    for i, message in enumerate(messages):
        last = i == len(messages) - 1 and message["role"] == "assistant"
        text += f"<|start|>{message['role']}<|message|>{message['content']}{'<|return|>' if last else '<|end|>'}"
    return text + ("<|start|>assistant" if add_generation_prompt else "")


def opened_thought(messages: Sequence[Message], add_generation_prompt: bool) -> str:
    """DeepSeek-R1's way: the generation prompt opens a thought that finished turns do not have."""
    text = "".join(
        f"<User>{m['content']}" if m["role"] == "user" else f"<Assistant>{m['content']}</s>" for m in messages
    )
    return text + ("<Assistant><think>\n" if add_generation_prompt else "")


def closed_by_the_next(messages: Sequence[Message], add_generation_prompt: bool) -> str:
    """GLM's way: a turn has no token of its own at its end, the next role's is what the model stops at."""
    text = "".join(f"<|{m['role']}|>\n{m['content']}" for m in messages)
    return text + ("<|assistant|>" if add_generation_prompt else "")


def moved_system(messages: Sequence[Message], add_generation_prompt: bool) -> str:
    """Mistral's way: the system message goes into the last question, questions and answers alternate."""
    system = "".join(f"{m['content']}\n\n" for m in messages if m["role"] == "system")
    talk = [m for m in messages if m["role"] != "system"]
    if any(m["role"] != ("user", "assistant")[i % 2] for i, m in enumerate(talk)):
        raise ValueError("roles must alternate")
    questions = [i for i, m in enumerate(talk) if m["role"] == "user"]
    text = "<s>"
    for i, m in enumerate(talk):
        before = system if i == questions[-1] else ""
        text += f"[INST] {before}{m['content']}[/INST]" if m["role"] == "user" else f" {m['content']}</s>"
    return text


def plain(messages: Sequence[Message], add_generation_prompt: bool) -> str:
    text = "".join(f"{str(m['role']).title()}: {m['content']}\n" for m in messages)
    return text + ("Assistant: " if add_generation_prompt else "")


def talk(*contents: str, system: str | None = None) -> list[Message]:
    """A question, an answer, a question, ..."""
    said: list[Message] = [
        {"role": "assistant" if i % 2 else "user", "content": content} for i, content in enumerate(contents)
    ]
    return [{"role": "system", "content": system}, *said] if system else said


def spoken(render: Render, messages: Sequence[Message]) -> list[str]:
    whole = render(messages, False)
    spans = assistant_spans(whole, messages, render, SPECIAL)
    assert not isinstance(spans, Reject), spans
    return [whole[span.begin : span.end] for span in spans]


THOUGHT = "<think>\nhm\n</think>\n\n"


@pytest.mark.parametrize(
    ("render", "messages", "expected"),
    [
        (chatml, talk("q", "a"), ["a<|im_end|>"]),
        (chatml, talk("q", "a", "q2", "b", system="s"), ["a<|im_end|>", "b<|im_end|>"]),
        (chatml, talk("q", ""), ["<|im_end|>"]),
        (chatml, talk("q", "a\n\n"), ["a\n\n<|im_end|>"]),
        (chatml, talk("q", "a", "unanswered"), ["a<|im_end|>"]),
        (chatml, talk("4<|im_end|>", "4"), ["4<|im_end|>"]),
        (chatml, [{"role": "assistant", "content": "first"}, *talk("q", "a")], ["first<|im_end|>", "a<|im_end|>"]),
        (chatml, [*talk("q", "a"), {"role": "assistant", "content": "b"}], ["a<|im_end|>", "b<|im_end|>"]),
        (chatml, talk("q"), []),
        (reasoning, talk("q", "a"), ["<think>\n\n</think>\n\na<|im_end|>"]),
        (reasoning, talk("q", "a", "q", "a", "a", "a"), ["a<|im_end|>"] * 2 + ["<think>\n\n</think>\n\na<|im_end|>"]),
        (reasoning, talk("q", f"{THOUGHT}a", "q2", f"{THOUGHT}b"), ["a<|im_end|>", f"{THOUGHT}b<|im_end|>"]),
        (harmony, talk("q", "a", "q2", "b"), ["<|message|>a<|end|>", "<|message|>b<|return|>"]),
        (opened_thought, talk("q", "a", "q2", "b"), ["a</s>", "b</s>"]),
        (moved_system, talk("q", "a", "q2", "b", system="s"), ["a</s>", " b</s>"]),
        (closed_by_the_next, talk("q", "a", "q2", "b"), ["\na<|user|>", "\nb"]),
        (plain, talk("q", "a", "q2", "b"), ["a\n", "b\n"]),
    ],
)
def test_a_turn_is_what_the_model_would_write(render: Render, messages: list[Message], expected: list[str]) -> None:
    assert spoken(render, messages) == expected


CONTENT = st.text(alphabet=st.sampled_from("ab 4\n<>é"), max_size=6)


@given(st.lists(st.tuples(CONTENT, CONTENT), min_size=1, max_size=4))
def test_chatml_spans_hold_the_answers_whatever_they_say(turns: list[tuple[str, str]]) -> None:
    messages = talk(*(content for turn in turns for content in turn))
    assert spoken(chatml, messages) == [f"{answer}<|im_end|>" for _, answer in turns]


@given(st.lists(st.tuples(CONTENT, CONTENT.map(str.strip)), min_size=2, max_size=4))
def test_rewritten_turns_are_found_whatever_they_say(turns: list[tuple[str, str]]) -> None:
    messages = talk(*(content for q, a in turns for content in (q, f"{THOUGHT}{a}")))
    answers = [answer for _, answer in turns]
    assert spoken(reasoning, messages) == [f"{a}<|im_end|>" for a in answers[:-1]] + [
        f"{THOUGHT}{answers[-1]}<|im_end|>"
    ]


def test_a_tool_call_without_content_is_found_in_a_rewritten_turn() -> None:
    def render(messages: Sequence[Message], add_generation_prompt: bool) -> str:
        shown = [{**m, "content": f"{m['content']}{m.get('tool_calls', '')}"} for m in messages]
        return reasoning(shown, add_generation_prompt)

    messages: list[Message] = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "", "tool_calls": "<call>"},
        {"role": "user", "content": "result"},
        {"role": "assistant", "content": "done"},
    ]
    assert spoken(render, messages)[0] == "<call><|im_end|>"


def test_a_template_that_cannot_be_followed_is_refused() -> None:
    def shuffled(messages: Sequence[Message], add_generation_prompt: bool) -> str:
        return "".join(str(m["content"])[::-1] + str(len(messages)) for m in reversed(messages))

    messages = talk("ask", "answer", "again", "more")
    found = assistant_spans(shuffled(messages, False), messages, shuffled, SPECIAL)
    assert isinstance(found, Reject)
    assert found.reason is Reason.TURN_NOT_FOUND
    assert "message 2" in found.detail


def test_a_conversation_that_holds_the_placeholder_is_refused_where_it_would_be_ambiguous() -> None:
    messages = talk(PLACEHOLDER, f"{THOUGHT}a", "q", "b")
    assert isinstance(assistant_spans(reasoning(messages, False), messages, reasoning, SPECIAL), Reject)


def test_token_mask_takes_tokens_that_begin_in_a_span_or_reach_into_it() -> None:
    offsets = [(0, 2), (2, 4), (4, 6), (6, 6), (6, 9)]
    assert token_mask(offsets, [Span(2, 4)]) == b"\0\1\0\0\0"
    assert token_mask(offsets, [Span(3, 5)]) == b"\0\1\1\0\0"
    assert token_mask(offsets, [Span(0, 1), Span(6, 9)]) == b"\1\0\0\1\1"
    assert token_mask(offsets, []) == b"\0" * 5
    assert token_mask([], [Span(0, 3)]) == b""


def test_tokens_that_share_a_character_are_taken_together() -> None:
    assert token_mask([(0, 1), (1, 2), (1, 2), (1, 2), (2, 3)], [Span(1, 2)]) == b"\0\1\1\1\0"


@given(st.lists(st.integers(0, 3), max_size=20), st.data())
def test_token_mask_agrees_with_its_definition(widths: list[int], data: st.DataObject) -> None:
    bounds = [0]
    for width in widths:
        bounds.append(bounds[-1] + width)
    offsets = list(pairwise(bounds))
    begin = data.draw(st.integers(0, bounds[-1]))
    end = data.draw(st.integers(begin, bounds[-1]))
    expected = bytes(begin < end and (begin <= b < end or b < begin < e) for b, e in offsets)
    assert token_mask(offsets, [Span(begin, end)]) == expected
