"""SGLang's ``/generate`` as data: a body into requests, an ending into an answer. No I/O."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hsengine.request import Finish, Request
from hsqueue.contracts.errors import SampleRefused

RESERVED = 6
"""Positions that SGLang keeps back: a prompt may have the context length less these."""


@dataclass(frozen=True, slots=True)
class Rules:
    """context_length: positions of the model. stop_tokens: ids that end a completion.
    encode: text to token ids. wants: whether a rid is captured.
    """

    context_length: int
    stop_tokens: frozenset[int]
    encode: Callable[[str], list[int]]
    wants: Callable[[str], bool]

    @property
    def max_input(self) -> int:
        return self.context_length - RESERVED


@dataclass(frozen=True, slots=True)
class Parsed:
    """requests: one for each prompt. batched: whether the body held a list of prompts, so the answer must too."""

    requests: list[Request]
    batched: bool


def parse_generate(body: Any, rules: Rules) -> Parsed:
    """Raises SampleRefused, which is answered with 400, for a body that SGLang would refuse too."""
    if not isinstance(body, dict):
        raise SampleRefused("The body must be a JSON object")
    prompts, batched = _prompts(body, rules)
    rids = _per_prompt(body.get("rid"), len(prompts), batched, suffix=True)
    keys = _per_prompt(body.get("extra_key"), len(prompts), batched)
    params = body.get("sampling_params") or {}
    each = params if isinstance(params, list) else [params] * len(prompts)
    if len(each) != len(prompts):
        raise SampleRefused("sampling_params must be one object, or one for each prompt")
    requests = [
        _request(ids, rid, key, sampling, rules)
        for ids, rid, key, sampling in zip(prompts, rids, keys, each, strict=True)
    ]
    return Parsed(requests, batched)


def _prompts(body: dict[str, Any], rules: Rules) -> tuple[list[list[int]], bool]:
    ids, text = body.get("input_ids"), body.get("text")
    if (ids is None) == (text is None):
        raise SampleRefused("Either text or input_ids should be provided, not both and not neither.")
    batched = isinstance(text, list) or bool(isinstance(ids, list) and ids and isinstance(ids[0], list))
    given: Any = [rules.encode(one) for one in _texts(text)] if ids is None else ids
    prompts: list[list[int]] = given if batched or ids is None else [given]
    for prompt in prompts:
        if not isinstance(prompt, list) or not prompt or not all(type(token) is int for token in prompt):
            raise SampleRefused("input_ids must be a list of token ids that is not empty, or a list of such lists")
    return prompts, batched


def _texts(text: Any) -> list[str]:
    texts = text if isinstance(text, list) else [text]
    if not all(isinstance(one, str) for one in texts):
        raise SampleRefused("text must be a string or a list of strings")
    return texts


def _per_prompt(value: Any, count: int, batched: bool, suffix: bool = False) -> list[str | None]:
    """One value for each prompt. suffix: a single value of a batch is made unique by the prompt's number."""
    if value is None:
        return [None] * count
    if isinstance(value, list):
        if not batched or len(value) != count or not all(isinstance(one, str) for one in value):
            raise SampleRefused("rid and extra_key must be strings, one for each prompt")
        return value
    if not isinstance(value, str):
        raise SampleRefused("rid and extra_key must be strings")
    return [f"{value}_{k}" for k in range(count)] if batched and suffix else [value] * count


def _request(ids: list[int], rid: str | None, key: str | None, sampling: Any, rules: Rules) -> Request:
    if not isinstance(sampling, dict):
        raise SampleRefused("sampling_params must be an object")
    new = sampling.get("max_new_tokens", 128)
    if type(new) is not int or new < 0:
        raise SampleRefused(f"max_new_tokens must be at least 0, got {new}.")
    _require_room(len(ids), new, rules)
    rid = rid or uuid.uuid4().hex
    stop_tokens = frozenset[int]() if sampling.get("ignore_eos") else rules.stop_tokens
    return Request(rid, ids, new, key, stop_tokens, rules.wants(rid))


def _require_room(tokens: int, new: int, rules: Rules) -> None:
    """SGLang's three refusals of what is too long, in its words and in its order."""
    context = rules.context_length
    if tokens >= context:
        raise SampleRefused(
            f"The input ({tokens} tokens) is longer than the model's context length ({context} tokens)."
        )
    if tokens + new > context:
        raise SampleRefused(
            f"Requested token count exceeds the model's maximum context length of {context} tokens. "
            f"You requested a total of {tokens + new} tokens: {tokens} tokens from the input messages and "
            f"{new} tokens for the completion. Please reduce the number of tokens in the input messages or "
            f"the completion to fit within the limit."
        )
    if tokens > rules.max_input:
        raise SampleRefused(
            f"Input length ({tokens} tokens) exceeds the maximum allowed length ({rules.max_input} tokens). "
            f"Use a shorter input or enable --allow-auto-truncate."
        )


def answer(request: Request, finish: Finish, text: str) -> dict[str, Any]:
    """The JSON object that ``/generate`` returns for one prompt. text: of the completion."""
    return {
        "text": text,
        "output_ids": request.output_ids,
        "meta_info": {
            "id": request.rid,
            "finish_reason": finish.to_json(),
            "prompt_tokens": len(request.input_ids),
            "weight_version": "default",
            "total_retractions": 0,
            "completion_tokens": len(request.output_ids),
            "cached_tokens": request.cached,
            "dp_rank": None,
            "e2e_latency": time.time() - request.received,
        },
    }


def error(message: str) -> dict[str, Any]:
    """The JSON object of a refusal."""
    return {"error": {"message": message}}
