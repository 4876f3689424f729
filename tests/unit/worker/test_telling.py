"""What a task tells of its shard: progress now and then, a rate of what this lease did, reasons of failures."""

from __future__ import annotations

from typing import Any

import pytest

from hsqueue.contracts.sample import Ending, GivenUp
from hsworker.telling import LONGEST_REASON, Teller, progress_text, reasons


class Told:
    """The texts that a Teller sent, by a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.texts: list[str] = []
        self.teller = Teller(self.send, "http://engine:1", lambda: self.now)

    def send(self, event: str, **fields: Any) -> None:
        assert event == "task-progress"
        assert fields["args"] == "http://engine:1"
        self.texts.append(fields["result"])

    def at(self, second: float, ended: int, tokens: int) -> None:
        self.now = 100.0 + second
        self.teller.report(ended, 64, tokens)


def test_the_rate_is_of_this_lease_only() -> None:
    told = Told()
    told.at(0, 30, 9000)
    told.at(2, 40, 12000)
    assert told.texts == ["30/64 samples", "40/64 samples, 1,500 tokens/s"]


def test_it_is_told_once_a_second_and_at_the_end() -> None:
    told = Told()
    for tenth in range(11):
        told.at(tenth / 10, tenth, 0)
    told.at(1.2, 64, 0)
    assert told.texts == ["0/64 samples", "10/64 samples", "64/64 samples"]


def test_progress_that_cannot_be_sent_stops_nothing() -> None:
    def send(event: str, **fields: Any) -> None:
        raise ConnectionError(event)

    Teller(send, "").report(1, 2, 3)
    Teller(send, "").waits()


def test_a_shard_that_waits_names_its_engine() -> None:
    told = Told()
    told.teller.waits()
    assert told.texts == ["waits for its turn"]


@pytest.mark.parametrize(("rate", "text"), [(0, "1/2 samples"), (1234.6, "1/2 samples, 1,235 tokens/s")])
def test_progress_text(rate: float, text: str) -> None:
    assert progress_text(1, 2, rate) == text


def test_reasons_count_errors_and_show_the_first() -> None:
    failed = [GivenUp(k, Ending.FAILED, 5, error, f"detail {k}") for k, error in ((9, "A"), (3, "B"), (4, "B"))]
    assert reasons([*failed, GivenUp(1, Ending.SKIPPED, 1, "C", "")]) == "2 B, 1 A; sample 3: detail 3"


def test_reasons_of_no_failure_are_none() -> None:
    assert reasons([GivenUp(1, Ending.SKIPPED, 1, "C", "long")]) == ""


def test_a_reason_has_an_end() -> None:
    assert len(reasons([GivenUp(0, Ending.FAILED, 1, "A", "x" * 9999)])) < LONGEST_REASON + 50
