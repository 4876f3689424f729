from __future__ import annotations

from typing import Any

import pytest

from hsengine.payload import Rules, answer, parse_generate
from hsengine.request import Request, abort, length
from hsqueue.contracts.errors import SampleRefused

CONTEXT = 20
RULES = Rules(CONTEXT, frozenset({2}), lambda text: [ord(c) for c in text], lambda rid: rid.startswith("hsq."))


def test_one_prompt_of_token_ids() -> None:
    body = {"input_ids": [5, 6], "rid": "hsq.a.0.1.0", "extra_key": "k", "sampling_params": {"max_new_tokens": 0}}
    parsed = parse_generate(body, RULES)
    (request,) = parsed.requests
    assert not parsed.batched
    assert (request.rid, request.input_ids, request.max_new_tokens) == ("hsq.a.0.1.0", [5, 6], 0)
    assert (request.extra_key, request.wants_capture, request.stop_tokens) == ("k", True, frozenset({2}))


def test_a_batch_with_a_value_for_each_prompt() -> None:
    params = [{"max_new_tokens": 0}, {"max_new_tokens": 3, "ignore_eos": True}]
    parsed = parse_generate({"input_ids": [[5], [6, 7]], "rid": ["a", "hsq.b"], "sampling_params": params}, RULES)
    assert parsed.batched
    assert [(r.rid, r.input_ids, r.max_new_tokens, r.wants_capture) for r in parsed.requests] == [
        ("a", [5], 0, False),
        ("hsq.b", [6, 7], 3, True),
    ]
    assert parsed.requests[1].stop_tokens == frozenset()


def test_one_rid_of_a_batch_is_made_unique() -> None:
    parsed = parse_generate(
        {"input_ids": [[5], [6]], "rid": "a", "extra_key": "k", "sampling_params": {"max_new_tokens": 0}}, RULES
    )
    assert [r.rid for r in parsed.requests] == ["a_0", "a_1"]
    assert [r.extra_key for r in parsed.requests] == ["k", "k"]


def test_requests_without_a_rid_get_one_each() -> None:
    parsed = parse_generate({"text": ["a", "b"], "sampling_params": {"max_new_tokens": 0}}, RULES)
    assert [r.input_ids for r in parsed.requests] == [[97], [98]]
    assert len({r.rid for r in parsed.requests}) == 2


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ([], "JSON object"),
        ({}, "Either text or input_ids"),
        ({"text": "a", "input_ids": [1]}, "Either text or input_ids"),
        ({"input_ids": []}, "not empty"),
        ({"input_ids": [[]]}, "not empty"),
        ({"input_ids": [[1], 2]}, "list of token ids"),
        ({"input_ids": [1, "2"]}, "list of token ids"),
        ({"input_ids": [True]}, "list of token ids"),
        ({"input_ids": "12"}, "list of token ids"),
        ({"text": 5}, "text must be"),
        ({"input_ids": [1], "rid": 5}, "must be strings"),
        ({"input_ids": [[1], [2]], "rid": ["a"]}, "one for each prompt"),
        ({"input_ids": [1], "rid": ["a"]}, "one for each prompt"),
        ({"input_ids": [1], "sampling_params": {"max_new_tokens": -1}}, "at least 0"),
        ({"input_ids": [1], "sampling_params": {"max_new_tokens": 1.5}}, "at least 0"),
        ({"input_ids": [1], "sampling_params": "x"}, "must be an object"),
        ({"input_ids": [[1], [2]], "sampling_params": [{}]}, "one for each prompt"),
    ],
)
def test_what_makes_no_sense_is_refused(body: Any, complaint: str) -> None:
    with pytest.raises(SampleRefused, match=complaint):
        parse_generate(body, RULES)


@pytest.mark.parametrize(
    ("tokens", "new", "complaint"),
    [
        (CONTEXT - 6, 0, None),
        (CONTEXT - 6, 6, None),
        (CONTEXT - 5, 0, r"Input length \(15 tokens\) exceeds the maximum allowed length \(14 tokens\)"),
        (CONTEXT - 6, 7, "exceeds the model's maximum context length of 20 tokens"),
        (CONTEXT, 0, r"The input \(20 tokens\) is longer than the model's context length \(20 tokens\)"),
    ],
)
def test_the_limits_of_length(tokens: int, new: int, complaint: str | None) -> None:
    body = {"input_ids": [1] * tokens, "sampling_params": {"max_new_tokens": new}}
    if complaint is None:
        assert len(parse_generate(body, RULES).requests) == 1
    else:
        with pytest.raises(SampleRefused, match=complaint):
            parse_generate(body, RULES)


def test_an_answer_has_the_fields_that_clients_read() -> None:
    request = Request("hsq.a.0.1.0", [1, 2, 3], cached=1)
    found = answer(request, length(0), "")
    meta = found["meta_info"]
    assert (found["text"], found["output_ids"]) == ("", [])
    assert (meta["id"], meta["prompt_tokens"], meta["completion_tokens"], meta["cached_tokens"]) == (
        "hsq.a.0.1.0", 3, 0, 1,
    )  # fmt: skip
    assert meta["finish_reason"] == {"type": "length", "length": 0}
    assert meta["e2e_latency"] >= 0
    assert answer(request, abort("why"), "")["meta_info"]["finish_reason"]["type"] == "abort"
