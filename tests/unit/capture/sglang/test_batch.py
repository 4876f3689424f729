from __future__ import annotations

import pytest

from hscapture.sglang.batch import extends_of
from hsqueue.contracts.errors import DumpMalformed
from tests.unit.capture.sglang.fakes import FakeBatch, FakeRequest, batch_of


def ours(rid: str) -> bool:
    return rid.startswith("hsq.")


def test_every_request_keeps_its_place_whether_or_not_it_is_ours() -> None:
    found = extends_of(batch_of(FakeRequest("HEALTH_CHECK_1", [0]), FakeRequest("hsq.a", [1, 2, 3])), ours)
    assert [(e.rid, e.extend_len, e.wants_capture) for e in found] == [
        ("HEALTH_CHECK_1", 1, False),
        ("hsq.a", 3, True),
    ]


def test_only_the_chunk_that_reaches_the_prompts_end_is_the_last() -> None:
    request = FakeRequest("hsq.a", list(range(10)))
    chunks = [FakeBatch([request], [n], [p]) for p, n in ((0, 4), (4, 4), (8, 1), (9, 1))]
    assert [extends_of(chunk, ours)[0].is_last_chunk for chunk in chunks] == [False, False, False, True]


def test_decode_rows_of_a_mixed_batch_take_rows_and_are_not_captured() -> None:
    decoding = FakeRequest("hsq.a", [1, 2, 3])
    (found,) = extends_of(FakeBatch([decoding], [1], [3]), ours)
    assert (found.extend_len, found.wants_capture) == (1, False)


def test_a_prompt_computed_again_after_it_began_to_decode_is_not_captured() -> None:
    again = FakeRequest("hsq.a", [1, 2, 3], output_ids=[7, 8])
    (found,) = extends_of(FakeBatch([again], [5], [0]), ours)
    assert not found.wants_capture


@pytest.mark.parametrize("ending", [{"to_finish": "abort"}, {"finished_reason": "abort"}])
def test_an_aborted_request_still_runs_but_is_not_captured(ending: dict[str, str]) -> None:
    (found,) = extends_of(batch_of(FakeRequest("hsq.a", [0], **ending)), ours)  # type: ignore[arg-type]
    assert (found.extend_len, found.wants_capture) == (1, False)


def test_lists_of_different_lengths_are_no_batch() -> None:
    with pytest.raises(DumpMalformed, match="1 requests, found 2 lengths and 1 prefixes"):
        extends_of(FakeBatch([FakeRequest("hsq.a", [1])], [1, 1], [0]), ours)
