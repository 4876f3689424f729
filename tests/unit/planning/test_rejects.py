"""The list of rejected lines: written, read back, summed up."""

from __future__ import annotations

from pathlib import Path

import pytest

from hsqueue.contracts.errors import RunDamaged
from hsqueue.planning.rejects import Reason, Rejected, RejectLog, read_rejected, rejection_summary

SOME = [
    Rejected("a.jsonl", 3, None, Reason.BAD_JSON, "Expecting ',' \n né \ud800 \x1b[2J"),
    *(Rejected("a.jsonl", 10 + i, f"id {i}", Reason.OVER_LENGTH, "9 tokens, at most 8") for i in range(5)),
]


def write(path: Path) -> RejectLog:
    with RejectLog(path) as log:
        for one in SOME:
            log.add(one)
    return log


def test_what_is_written_is_read_back_and_counted(tmp_path: Path) -> None:
    log = write(tmp_path / "rejected.jsonl")
    assert list(read_rejected(tmp_path / "rejected.jsonl")) == SOME
    assert log.counts == {"bad json": 1, "over length": 5}


def test_the_summary_shows_the_first_of_each_reason(tmp_path: Path) -> None:
    path = tmp_path / "rejected.jsonl"
    write(path)
    assert rejection_summary(path, examples=2) == [
        "5 rejected: over length",
        "  a.jsonl:10 (id id 0): 9 tokens, at most 8",
        "  a.jsonl:11 (id id 1): 9 tokens, at most 8",
        f"  and 3 more in {path}",
        "1 rejected: bad json",
        "  a.jsonl:3: Expecting ',' ? né ? ?[2J",
    ]


def test_without_examples_only_counts_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "rejected.jsonl"
    write(path)
    assert [line for line in rejection_summary(path, examples=0) if not line.startswith(" ")] == [
        "5 rejected: over length",
        "1 rejected: bad json",
    ]


def test_no_list_is_no_rejected_line(tmp_path: Path) -> None:
    assert rejection_summary(tmp_path / "rejected.jsonl") == []


@pytest.mark.parametrize("line", ['{"file": "a"', "{}", '{"reason": "unheard of"}', "[]", "\xff"])
def test_a_damaged_list_says_where(tmp_path: Path, line: str) -> None:
    path = tmp_path / "rejected.jsonl"
    path.write_text(SOME[0].to_json() + "\n" + line + "\n", encoding="latin-1")
    with pytest.raises(RunDamaged, match=r"rejected\.jsonl:2 is damaged"):
        list(read_rejected(path))


def test_an_existing_list_is_never_overwritten(tmp_path: Path) -> None:
    write(tmp_path / "rejected.jsonl")
    with pytest.raises(FileExistsError):
        RejectLog(tmp_path / "rejected.jsonl")
