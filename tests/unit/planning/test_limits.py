"""Limits at their edges."""

from __future__ import annotations

import array

import pytest

from hsqueue.planning.limits import Limits
from hsqueue.planning.records import Tokens
from hsqueue.planning.rejects import Reason

LIMITS = Limits(max_length=3, min_loss_tokens=1, vocab_size=10)


@pytest.mark.parametrize(
    ("ids", "mask", "reason"),
    [
        ([0, 9, 5], b"\0\1\0", None),
        ([1, 1, 1, 1], b"\1\1\1\1", Reason.OVER_LENGTH),
        ([], b"", Reason.EMPTY),
        ([10], b"\1", Reason.OUTSIDE_VOCABULARY),
        ([3, -1], b"\1\1", Reason.OUTSIDE_VOCABULARY),
        ([3, 4], b"\0\0", Reason.TOO_FEW_SUPERVISED),
    ],
)
def test_the_first_breach_is_named(ids: list[int], mask: bytes, reason: Reason | None) -> None:
    found = LIMITS.breach(Tokens(array.array("q", ids), mask))
    assert (found and found.reason) == reason


def test_both_values_are_named() -> None:
    long = LIMITS.breach(Tokens(array.array("q", [1] * 7), b"\1" * 7))
    strange = LIMITS.breach(Tokens(array.array("q", [1, 70]), b"\1\1"))
    assert long is not None
    assert strange is not None
    assert long.detail == "7 tokens, at most 3"
    assert strange.detail == "token id 70, the model has 0 to 9"


def test_without_a_minimum_a_sample_needs_no_supervision() -> None:
    assert Limits(3, 0, 10).breach(Tokens(array.array("q", [1]), b"\0")) is None
