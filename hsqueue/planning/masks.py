"""Which characters of a rendered conversation an assistant said, and which tokens those are. Pure.

Templates are foreign programs, so nothing about one is assumed; every boundary is an equality that was
checked between two renderings:

1. A turn begins where the rendering of the messages before it, with the generation prompt, ends, and ends
   where the rendering of the messages up to it ends, as long as both are prefixes of the whole.
2. Templates that write earlier turns differently once more follow (Qwen3 drops their reasoning) break
   such prefixes. The whole is then rendered again with a placeholder for the turn's content; what stands
   behind the placeholder must be the end of the whole, what stands before it its beginning.
3. Where neither holds, the conversation is rejected; a wrong mask would train silently.

The end-of-turn token, the special token that ends a turn or follows it, belongs to the turn, since the
model has to learn to write it; white space behind that token does not, since it never does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hsqueue.planning.records import Message
from hsqueue.planning.rejects import Reason, Reject

Render = Callable[[Sequence[Message], bool], str]
"""``(messages, add_generation_prompt) -> text``. May raise anything."""

PLACEHOLDER = "\ue000hsqueue\ue001"


@dataclass(frozen=True, slots=True)
class Span:
    """Characters ``begin`` to ``end``, exclusive."""

    begin: int
    end: int


def assistant_spans(
    whole: str, messages: Sequence[Message], render: Render, special: tuple[str, ...]
) -> list[Span] | Reject:
    """Spans of the assistant's turns in `whole`, which is ``render(messages, False)``, in order.

    special: texts of the tokenizer's special tokens, among which the end-of-turn token is.
    """
    spans: list[Span] = []
    for turn, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        span = _turn_span(whole, messages, turn, render, special)
        if span is None or (spans and span.begin < spans[-1].end):
            return Reject(
                Reason.TURN_NOT_FOUND,
                f"message {turn + 1} cannot be located in what the chat template makes of the conversation; "
                "a template with {% generation %} tags would say where it is",
            )
        spans.append(span)
    return spans


def _turn_span(
    whole: str, messages: Sequence[Message], turn: int, render: Render, special: tuple[str, ...]
) -> Span | None:
    prompt = _attempt(render, messages[:turn], True)
    begin = len(prompt) if prompt is not None and whole.startswith(prompt) else None
    through = whole if turn == len(messages) - 1 else _attempt(render, messages[: turn + 1], False)
    if begin is not None and through is not None and begin <= len(through) and whole.startswith(through):
        return Span(begin, _end_with_token(whole, begin, len(through), special))
    return _span_by_placeholder(whole, messages, turn, begin, render, special)


def _span_by_placeholder(
    whole: str,
    messages: Sequence[Message],
    turn: int,
    begin: int | None,
    render: Render,
    special: tuple[str, ...],
) -> Span | None:
    marked = _attempt(
        render, [*messages[:turn], {"role": "assistant", "content": PLACEHOLDER}, *messages[turn + 1 :]], False
    )
    if marked is None or marked.count(PLACEHOLDER) != 1:
        return None
    before, after = marked.split(PLACEHOLDER)
    if begin is None and whole.startswith(before):
        begin = len(before)
    end = len(whole) - len(after)
    if begin is None or end < begin or not whole.endswith(after):
        return None
    return Span(begin, end + _end_of_turn(after, special))


def _attempt(render: Render, messages: Sequence[Message], add_generation_prompt: bool) -> str | None:
    """None for a part of a conversation that the template refuses, say one that ends with the wrong role."""
    if not messages:
        return None
    try:
        return render(messages, add_generation_prompt)
    except Exception:  # noqa: BLE001 - a template is a foreign program and may raise anything
        return None


def _end_with_token(whole: str, begin: int, end: int, special: tuple[str, ...]) -> int:
    """`end` moved back in front of white space behind an end-of-turn token, or on behind one that follows."""
    stripped = whole[begin:end].rstrip()
    return begin + len(stripped) if stripped.endswith(special) else end + _end_of_turn(whole[end:], special)


def _end_of_turn(after: str, special: tuple[str, ...]) -> int:
    """Characters of the end-of-turn token that `after` begins with, 0 where it begins with none."""
    stripped = after.lstrip()
    longest = max((len(token) for token in special if stripped.startswith(token)), default=0)
    return len(after) - len(stripped) + longest if longest else 0


def token_mask(offsets: Sequence[tuple[int, int]], spans: Sequence[Span]) -> bytes:
    """Bytes of 0 and 1, one a token: 1 where a token begins within a span or reaches into it.

    offsets: ``(begin, end)`` characters of each token, ascending. spans: ascending, disjoint.
    """
    mask = bytearray(len(offsets))
    begins = [begin for begin, _ in offsets]
    for span in spans:
        if span.begin == span.end:
            continue
        first = bisect_left(begins, span.begin)
        last = bisect_left(begins, span.end)
        while first > 0 and offsets[first - 1][1] > span.begin:
            first -= 1
        mask[first:last] = b"\1" * (last - first)
    return bytes(mask)
