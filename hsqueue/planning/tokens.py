"""Conversations and texts to token ids and loss masks, by the model's own tokenizer and chat template."""

from __future__ import annotations

import array
import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import xxhash

from hsqueue.contracts.errors import DependencyMissing, UsageError
from hsqueue.planning.masks import Span, assistant_spans, token_mask
from hsqueue.planning.records import Conversation, Message, Text, Tokens
from hsqueue.planning.rejects import Reason, Reject

NO_TEMPLATE = "none"
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "sentencepiece.bpe.model",
    "spiece.model",
    "tekken.json",
)
_GENERATION_TAG = re.compile(r"\{%[-+]?\s*generation\s*[-+]?%\}")

Item = TypeVar("Item")
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class _Rendered:
    text: str
    spans: list[Span]


class Tokenizer:
    """A fast tokenizer with the chat template in force. Made by ``Tokenizer.load``.

    digest: of the tokenizer's files. template_digest: of the chat template's text, NO_TEMPLATE without one.
    """

    def __init__(self, tokenizer: Any, digest: str) -> None:
        self.digest = digest
        self.template_digest = _template_digest(tokenizer.chat_template)
        self._tokenizer = tokenizer
        self._backend = tokenizer.backend_tokenizer
        # A saved tokenizer may carry settings that would cut or fill samples unseen.
        self._backend.no_truncation()
        self._backend.no_padding()
        tokenizer.model_max_length = sys.maxsize
        self._bos: str = tokenizer.bos_token or ""
        self._special = tuple(t.content for t in tokenizer.added_tokens_decoder.values() if t.special and t.content)

    @classmethod
    def load(cls, directory: Path, chat_template: Path | None = None) -> Tokenizer:
        """Reads a tokenizer's or model's directory, never the network.

        chat_template: a Jinja file that replaces the tokenizer's own template. Raises UsageError where a file
        is missing, damaged or a template does not compile, DependencyMissing without transformers.
        """
        try:
            from transformers import AutoTokenizer
        except ImportError as error:
            raise DependencyMissing(
                f"tokenising needs the transformers package ({error})", do="Run pip install 'hsqueue[plan]'."
            ) from None
        if not directory.is_dir():
            raise UsageError(
                f"{directory} is no directory with a tokenizer",
                do="Say --tokenizer and the model's local directory.",
            )
        try:
            tokenizer = AutoTokenizer.from_pretrained(str(directory), local_files_only=True)
        except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
            raise UsageError(
                f"{directory} holds no tokenizer that can be loaded ({_one_line(error)})",
                do="Say --tokenizer and a directory that has the model's tokenizer.json and tokenizer_config.json.",
            ) from None
        if not getattr(tokenizer, "is_fast", False):
            raise UsageError(
                f"the tokenizer in {directory} has no fast form, so its tokens cannot be placed in the text",
                do="Convert it to a tokenizer.json, or give prompts as input_ids and loss_mask.",
            )
        if chat_template is not None:
            tokenizer.chat_template = _read_template(chat_template)
        _require_template_compiles(tokenizer, chat_template or directory)
        return cls(tokenizer, _files_digest(directory))

    def encode(self, bodies: Sequence[Conversation | Text]) -> list[Tokens | Reject]:
        """Tokens of each of `bodies` in order, or why there are none.

        A text gets the special tokens that the tokenizer adds, unless it begins with the BOS token already;
        a conversation gets those that its template writes and no others. Raises UsageError for a
        conversation where there is no chat template.
        """
        texts = {at: body for at, body in enumerate(bodies) if isinstance(body, Text)}
        talks = {at: body for at, body in enumerate(bodies) if isinstance(body, Conversation)}
        found = dict(zip(texts, self._encode_texts(list(texts.values())), strict=True))
        found.update(zip(talks, self._encode_conversations(list(talks.values())), strict=True))
        return [found[at] for at in range(len(bodies))]

    def _encode_texts(self, texts: Sequence[Text]) -> list[Tokens | Reject]:
        found: list[Tokens | Reject] = []
        for complete, group in groupby(texts, key=self._begins_with_bos):
            for encoding in self._encodings([one.text for one in group], special=not complete):
                found.append(encoding if isinstance(encoding, Reject) else _supervised(encoding.ids))
        return found

    def _begins_with_bos(self, text: Text) -> bool:
        return bool(self._bos) and text.text.startswith(self._bos)

    def _encode_conversations(self, talks: Sequence[Conversation]) -> list[Tokens | Reject]:
        found: list[Tokens | Reject] = []
        for tools, group in groupby(talks, key=lambda talk: talk.tools):
            encode = self._encode_tagged if self._has_generation_tags(tools) else self._encode_untagged
            found += encode(list(group), tools)
        return found

    def _has_generation_tags(self, tools: list[object] | None) -> bool:
        if self._tokenizer.chat_template is None:
            raise UsageError(
                "the tokenizer has no chat template, so conversations cannot be made into tokens",
                do="Give one with --chat-template FILE, or give prompts as text or input_ids.",
            )
        return _GENERATION_TAG.search(self._tokenizer.get_chat_template(tools=tools)) is not None

    def _encode_tagged(self, talks: Sequence[Conversation], tools: list[object] | None) -> list[Tokens | Reject]:
        def encode(some: Sequence[Conversation]) -> list[Tokens]:
            made = self._tokenizer.apply_chat_template(
                [talk.messages for talk in some],
                tools=tools,
                tokenize=True,
                return_dict=True,
                return_assistant_tokens_mask=True,
            )
            pairs = zip(made["input_ids"], made["assistant_masks"], strict=True)
            return [Tokens(array.array("q", ids), bytes(mask)) for ids, mask in pairs]

        return _together(talks, encode, Reason.TEMPLATE_FAILED)

    def _encode_untagged(self, talks: Sequence[Conversation], tools: list[object] | None) -> list[Tokens | Reject]:
        rendered = [self._render(talk, tools) for talk in talks]
        texts = [one.text for one in rendered if isinstance(one, _Rendered)]
        encodings = iter(self._encodings(texts, special=False))
        return [one if isinstance(one, Reject) else _masked(next(encodings), one.spans) for one in rendered]

    def _render(self, talk: Conversation, tools: list[object] | None) -> _Rendered | Reject:
        def render(messages: Sequence[Message], add_generation_prompt: bool) -> str:
            text: str = self._tokenizer.apply_chat_template(
                list(messages), tools=tools, tokenize=False, add_generation_prompt=add_generation_prompt
            )
            return text

        try:
            text = render(talk.messages, False)
        except Exception as error:  # noqa: BLE001 - a template is a foreign program and may raise anything
            return Reject(Reason.TEMPLATE_FAILED, _one_line(error))
        spans = assistant_spans(text, talk.messages, render, self._special)
        return spans if isinstance(spans, Reject) else _Rendered(text, spans)

    def _encodings(self, texts: Sequence[str], *, special: bool) -> list[Any]:
        def encode(some: Sequence[str]) -> list[Any]:
            return list(self._backend.encode_batch(list(some), add_special_tokens=special))

        return _together(texts, encode, Reason.TOKENIZER_FAILED)


def _together(
    items: Sequence[Item], make: Callable[[Sequence[Item]], list[Made]], reason: Reason
) -> list[Made | Reject]:
    """One call for all; where that fails, a call for each, so that one bad item costs only itself."""
    try:
        return [*make(items)] if items else []
    except Exception as error:  # noqa: BLE001 - templates and tokenizers are foreign programs
        if len(items) == 1:
            return [Reject(reason, _one_line(error))]
        return [made for item in items for made in _together([item], make, reason)]


def _supervised(ids: list[int]) -> Tokens:
    return Tokens(array.array("q", ids), b"\1" * len(ids))


def _masked(encoding: Any, spans: list[Span]) -> Tokens | Reject:
    if isinstance(encoding, Reject):
        return encoding
    return Tokens(array.array("q", encoding.ids), token_mask(encoding.offsets, spans))


def _read_template(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"--chat-template {path} cannot be read ({error})", do="Check the file.") from None


def _require_template_compiles(tokenizer: Any, where: Path) -> None:
    """Renders a conversation of one message; that the template refuses this one is no fault of the template."""
    if tokenizer.chat_template is None:
        return
    from jinja2 import TemplateSyntaxError

    try:
        tokenizer.apply_chat_template([{"role": "user", "content": "a"}], tokenize=False)
    except TemplateSyntaxError as error:
        raise UsageError(
            f"the chat template of {where} is no valid Jinja ({_one_line(error)}, line {error.lineno})",
            do="Correct it, or give another with --chat-template FILE.",
        ) from None
    except Exception:  # noqa: BLE001 - a template is a foreign program and may raise anything
        return


def _files_digest(directory: Path) -> str:
    digest = xxhash.xxh3_128()
    for name in TOKENIZER_FILES:
        if (directory / name).is_file():
            content = (directory / name).read_bytes()
            digest.update(f"{name}:{len(content)};".encode())
            digest.update(content)
    return digest.hexdigest()


def _template_digest(template: object) -> str:
    """Of the template's text, or of all of them where a tokenizer has several by name."""
    if template is None:
        return NO_TEMPLATE
    text = template if isinstance(template, str) else json.dumps(template, sort_keys=True)
    return xxhash.xxh3_128_hexdigest(text.encode())


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
