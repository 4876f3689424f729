from __future__ import annotations

import time
from pathlib import Path

import pytest

from hscapture.complaints import QUIET_SECONDS, Complaints
from hsqueue.contracts.complaint import COMPLAINT_NAME, Complaint
from hsqueue.contracts.errors import DumpMalformed


def test_the_same_complaint_is_made_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    complaints = Complaints(clock=lambda: now[0])
    full, gone = OSError(28, "No space left on device"), OSError(2, "No such file or directory")
    for rid in ("a", "b", "c"):
        complaints.about(rid, full)
    complaints.about("d", gone)
    now[0] = QUIET_SECONDS + 1
    complaints.about("e", full)
    assert [record.getMessage() for record in caplog.records] == [
        "no dump of a: OSError: [Errno 28] No space left on device",
        "no dump of d: FileNotFoundError: [Errno 2] No such file or directory",
        "no dump of e: OSError: [Errno 28] No space left on device (2 more like this)",
    ]


def test_the_last_one_is_kept_for_the_worker(tmp_path: Path) -> None:
    complaints = Complaints(tmp_path)
    complaints.about("hsq.a", OSError(28, "No space left on device"))
    complaints.about("hsq.b", DumpMalformed("two rows", expected=1, found=2))
    found = Complaint.from_json((tmp_path / COMPLAINT_NAME).read_bytes())
    assert (found.rid, found.text) == ("hsq.b", "two rows; expected 1, found 2")
    assert abs(found.time - time.time()) < 60
    assert [path.name for path in tmp_path.iterdir()] == [COMPLAINT_NAME]


def test_a_directory_that_takes_nothing_costs_no_more_than_the_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Complaints(tmp_path / "gone").about("hsq.a", OSError(28, "No space left on device"))
    assert len(caplog.records) == 1


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"rid": 1, "time": 2, "text": "x"}', '{"rid": "a"}'])
def test_what_is_no_complaint_is_not_read_as_one(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - json's own message or ours
        Complaint.from_json(text)
