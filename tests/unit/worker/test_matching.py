"""Every breach has a name, and nothing else passes."""

from __future__ import annotations

import array
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsqueue.contracts.dump import DumpMeta
from hsqueue.contracts.errors import (
    CachedPrefix,
    DumpMismatch,
    HsqueueError,
    Kind,
    RequestAborted,
    ResponseMismatch,
    SampleTooLong,
    StatesNotFinite,
    TokenOutOfVocabulary,
)
from hsqueue.contracts.sample import Sample
from hsqueue.contracts.target import Target
from hsqueue.contracts.tensorfile import TensorFile, parse_header
from hsworker.matching import Response, check_dump, check_response, check_sample, parse_response
from tests.support.volume import TARGET, dump_file_bytes, make_meta, make_sample

RID = "hsq.r1.3.4294967297.0"
SAMPLE = make_sample(3, 7)
META = make_meta(RID, 7)
ANSWER = {"meta_info": {"id": RID, "prompt_tokens": 7, "cached_tokens": 0, "finish_reason": {"type": "length"}}}


def head(sample: Sample = SAMPLE, target: Target = TARGET) -> TensorFile:
    return parse_header(dump_file_bytes(RID, sample, target))


# --- responses ------------------------------------------------------------------------------------------------


def test_a_response_is_read_as_sglang_writes_it() -> None:
    assert parse_response(ANSWER, RID) == Response(RID, 7, 0, "length")
    check_response(parse_response(ANSWER, RID), RID, 7)


def answer(**changes: Any) -> dict[str, Any]:
    return {"meta_info": {**ANSWER["meta_info"], **changes}}


@pytest.mark.parametrize(
    "body",
    [
        None, [], "text", 7, {}, {"meta_info": None}, {"meta_info": []}, {"error": "x"}, answer(id=None), answer(id=7),
        answer(prompt_tokens=None), answer(prompt_tokens="7"), answer(prompt_tokens=7.0), answer(cached_tokens=None),
        answer(cached_tokens="0"), [ANSWER], answer(prompt_tokens=True), answer(cached_tokens=False),
    ],
)  # fmt: skip
def test_an_answer_of_another_form_is_named(body: object) -> None:
    with pytest.raises(ResponseMismatch):
        parse_response(body, RID)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(ANSWER["meta_info"], JSON)) | JSON)
def test_no_answer_makes_anything_but_a_named_error_or_a_response(info: object) -> None:
    try:
        found = parse_response(json.loads(json.dumps({"meta_info": info})), RID)
    except ResponseMismatch:
        return
    assert isinstance(found.rid, str)
    assert type(found.prompt_tokens) is type(found.cached_tokens) is int


@pytest.mark.parametrize(
    ("change", "error", "expected", "found"),
    [
        ({"rid": "hsq.r1.4.4294967297.0"}, ResponseMismatch, RID, "hsq.r1.4.4294967297.0"),
        ({"prompt_tokens": 6}, ResponseMismatch, 7, 6),
        ({"prompt_tokens": 8}, ResponseMismatch, 7, 8),
        ({"cached_tokens": 1}, CachedPrefix, "0 cached tokens", 1),
        ({"cached_tokens": -1}, CachedPrefix, "0 cached tokens", -1),
        ({"finish": "abort"}, RequestAborted, None, None),
    ],
)
def test_a_response_about_something_else_is_named_with_both_values(
    change: dict[str, Any], error: type[HsqueueError], expected: object, found: object
) -> None:
    with pytest.raises(error) as caught:
        check_response(replace(Response(RID, 7, 0, "length"), **change), RID, 7)
    assert (caught.value.expected, caught.value.found, caught.value.sample) == (expected, found, RID)
    assert caught.value.kind is Kind.RETRY


@pytest.mark.parametrize("finish", ["length", "stop", "None", ""])
def test_every_finish_but_an_abort_is_a_prefill(finish: str) -> None:
    check_response(Response(RID, 7, 0, finish), RID, 7)


# --- samples --------------------------------------------------------------------------------------------------


def sample(*ids: int) -> Sample:
    return Sample(0, "x", array.array("q", ids), bytes(len(ids)))


@pytest.mark.parametrize("ids", [(0,), (999,), (0, 999, 0), tuple(range(10))])
def test_a_sample_within_vocabulary_and_length_may_be_sent(ids: tuple[int, ...]) -> None:
    check_sample(sample(*ids), TARGET, 10)


@pytest.mark.parametrize(("ids", "found"), [((1000,), 1000), ((5, 1 << 40), 1 << 40), ((3, -1), -1)])
def test_a_token_id_that_the_model_has_no_embedding_for_is_never_sent(ids: tuple[int, ...], found: int) -> None:
    with pytest.raises(TokenOutOfVocabulary, match="expected 0 to 999") as caught:
        check_sample(sample(*ids), TARGET, 10)
    assert caught.value.found == found


def test_a_sample_too_long_for_the_engine_is_never_sent() -> None:
    with pytest.raises(SampleTooLong) as caught:
        check_sample(sample(*range(11)), TARGET, 10)
    assert (caught.value.expected, caught.value.found) == (10, 11)


def test_an_empty_sample_is_skipped_by_name() -> None:
    with pytest.raises(HsqueueError) as caught:
        check_sample(sample(), TARGET, 10)
    assert caught.value.kind is Kind.SKIP


# --- dumps ----------------------------------------------------------------------------------------------------


def check(meta: DumpMeta = META, file: TensorFile | None = None, ids: bytes | None = None) -> None:
    check_dump(meta, file or head(), SAMPLE.input_ids.tobytes() if ids is None else ids, RID, SAMPLE, TARGET)


def test_the_dump_of_the_request_passes() -> None:
    check()


@pytest.mark.parametrize("norm", ["post", "pre", "both"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_the_dump_of_every_target_passes(norm: str, dtype: str) -> None:
    target = replace(TARGET, norm=norm, dtype=dtype)
    meta = make_meta(RID, 7, target)
    check_dump(meta, head(target=target), SAMPLE.input_ids.tobytes(), RID, SAMPLE, target)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rid": "hsq.r1.3.4294967297.1"}, "another request id"),
        ({"num_tokens": 6}, "another rows"),
        ({"prefix_len": 1}, "another cached prefix"),
        ({"layers": (2, 4, 6)}, "another layers"),
        ({"layers": (2, 4)}, "another layers"),
        ({"norm": "pre"}, "another norm"),
        ({"dtype": "float16"}, "another dtype"),
        ({"chunks": (3, 3)}, "another rows in chunks"),
        ({"chunks": ()}, "another rows in chunks"),
    ],
)
def test_metadata_of_something_else_are_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(DumpMismatch, match=words) as caught:
        check(replace(META, **change))
    assert caught.value.sample == RID
    assert caught.value.expected is not None
    assert caught.value.found is not None


@pytest.mark.parametrize(
    "file",
    [
        head(make_sample(3, 6)),
        head(target=replace(TARGET, hidden_size=16)),
        head(target=replace(TARGET, dtype="float16")),
        head(target=replace(TARGET, norm="both")),
        head(target=replace(TARGET, layers=(2, 4))),
    ],
)
def test_tensors_of_another_shape_are_named_though_the_metadata_fit(file: TensorFile) -> None:
    with pytest.raises(DumpMismatch, match="other tensors"):
        check(file=file)


@pytest.mark.parametrize("place", range(7))
def test_one_token_id_that_differs_is_another_prompt(place: int) -> None:
    ids = SAMPLE.input_ids[:]
    ids[place] ^= 1
    with pytest.raises(DumpMismatch, match="token ids differ"):
        check(ids=ids.tobytes())


@pytest.mark.parametrize("ids", [b"", SAMPLE.input_ids[:-1].tobytes(), SAMPLE.input_ids.tobytes() + bytes(8)])
def test_token_ids_of_another_length_are_another_prompt(ids: bytes) -> None:
    with pytest.raises(DumpMismatch, match="token ids differ"):
        check(ids=ids)


def test_rows_shifted_by_one_are_another_prompt() -> None:
    ids = array.array("q", [*SAMPLE.input_ids[1:], SAMPLE.input_ids[0]])
    with pytest.raises(DumpMismatch, match="token ids differ"):
        check(ids=ids.tobytes())


def test_states_that_are_not_finite_are_named() -> None:
    with pytest.raises(StatesNotFinite, match="last_hidden_state"):
        check(replace(META, nonfinite=("last_hidden_state",)))


@pytest.mark.parametrize(
    "change",
    [{"model": "/elsewhere"}, {"server": "other"}, {"engine": "i2"}, {"layers_asked": (1,)}, {"chunks": (3, 4)}],
)
def test_what_makes_no_other_states_does_not_matter(change: dict[str, Any]) -> None:
    check(replace(META, **change))
