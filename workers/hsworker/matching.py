"""Whether a response and a dump are those of a request: every check a function, every breach a named error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hsqueue.contracts.dump import INPUT_IDS, DumpMeta, expected_tensors
from hsqueue.contracts.errors import (
    CachedPrefix,
    DumpMismatch,
    RequestAborted,
    ResponseMismatch,
    SampleEmpty,
    SampleTooLong,
    StatesNotFinite,
    TokenOutOfVocabulary,
)
from hsqueue.contracts.sample import Sample
from hsqueue.contracts.target import Target
from hsqueue.contracts.tensorfile import TensorFile


@dataclass(frozen=True, slots=True)
class Response:
    """What an engine said of a request. cached_tokens: prompt tokens that it did not compute."""

    rid: str
    prompt_tokens: int
    cached_tokens: int
    finish: str


def parse_response(body: object, rid: str) -> Response:
    """From the JSON of SGLang's ``/generate``. Raises ResponseMismatch where it is none."""
    info = body.get("meta_info") if isinstance(body, Mapping) else None
    if not isinstance(info, Mapping):
        raise ResponseMismatch("the engine's answer has no meta_info", sample=rid)
    reason = info.get("finish_reason")
    finish = reason.get("type") if isinstance(reason, Mapping) else reason
    found, prompt, cached = info.get("id"), info.get("prompt_tokens"), info.get("cached_tokens", 0)
    if not isinstance(found, str) or type(prompt) is not int or type(cached) is not int:
        raise ResponseMismatch("the engine's meta_info lacks id, prompt_tokens or cached_tokens", sample=rid)
    return Response(found, prompt, cached, str(finish))


def check_response(response: Response, rid: str, tokens: int) -> None:
    """Raises ResponseMismatch, RequestAborted or CachedPrefix unless the response is about this whole prompt."""
    if response.rid != rid:
        raise ResponseMismatch("the engine answered another request", expected=rid, found=response.rid, sample=rid)
    if response.finish == "abort":
        raise RequestAborted("the engine aborted the request", sample=rid)
    if response.prompt_tokens != tokens:
        raise ResponseMismatch(
            "the engine saw another number of tokens", expected=tokens, found=response.prompt_tokens, sample=rid
        )
    if response.cached_tokens != 0:
        raise CachedPrefix(
            "the engine reused cached states", expected="0 cached tokens", found=response.cached_tokens, sample=rid,
            do="Nothing at once; if it persists, start the engine with --disable-radix-cache.",
        )  # fmt: skip


def check_sample(sample: Sample, target: Target, limit: int) -> None:
    """Raises SampleEmpty, SampleTooLong or TokenOutOfVocabulary before a request that could take an engine down.

    limit: tokens that the engine accepts in one prompt.
    """
    if not sample.tokens:
        raise SampleEmpty("a prompt without a token")
    if sample.tokens > limit:
        raise SampleTooLong("more tokens than the engine accepts", expected=limit, found=sample.tokens)
    # Read without their sign, negative ones are larger than any vocabulary: one look at each finds both.
    if max(memoryview(sample.input_ids).cast("B").cast("Q")) >= target.vocab_size:
        worst = max(sample.input_ids)
        raise TokenOutOfVocabulary(
            "token id outside the vocabulary",
            expected=f"0 to {target.vocab_size - 1}",
            found=worst if worst >= target.vocab_size else min(sample.input_ids),
        )


def check_dump(meta: DumpMeta, file: TensorFile, ids: bytes, rid: str, sample: Sample, target: Target) -> None:
    """Raises DumpMismatch or StatesNotFinite unless the dump holds exactly this sample's states.

    ids: the bytes of the dump's ``input_ids``, int64 little-endian [S].
    """
    for name, wanted, got in (
        ("request id", rid, meta.rid),
        ("rows", sample.tokens, meta.num_tokens),
        ("cached prefix", 0, meta.prefix_len),
        ("layers", target.layers, meta.layers),
        ("norm", target.norm, meta.norm),
        ("dtype", target.dtype, meta.dtype),
        ("rows in chunks", sample.tokens, sum(meta.chunks)),
    ):
        if wanted != got:
            raise DumpMismatch(f"dump with another {name}", expected=wanted, found=got, sample=rid)
    expected = expected_tensors(sample.tokens, len(target.layers), target.hidden_size, target.norm, target.dtype)
    shapes = {name: (dtype, shape) for name, dtype, shape in expected}
    found = {name: (spec.dtype, spec.shape) for name, spec in file.tensors.items()}
    if shapes != found:
        raise DumpMismatch("dump with other tensors", expected=shapes, found=found, sample=rid)
    if file.tensors[INPUT_IDS].begin != 0 or ids != sample.input_ids.tobytes():
        raise DumpMismatch(
            "dump of another prompt: its token ids differ", sample=rid,
            do="Nothing at once; it is tried again. If it persists, the capture plugin slices rows wrongly.",
        )  # fmt: skip
    if meta.nonfinite:
        raise StatesNotFinite("states that are NaN or infinite", found=", ".join(meta.nonfinite), sample=rid)
