from __future__ import annotations

from datetime import datetime

import pytest

from hsqueue.cli.lines import Lines, progress_line, status_lines
from hsqueue.cli.words import clock, doing, headline, speed
from hsqueue.monitoring.pace import NO_PACE, Pace
from hsqueue.monitoring.troubles import Trouble
from tests.support.views import complete, failed, skipped, view, worker

EVENING = datetime(2026, 11, 30, 20, 0)
STALLED = Trouble("engine_stalled", "gpu0@node0", "the engine at http://e stands still: no answer for 9 s")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "33.1% of 37,312 samples, about 2 h 17 min left"),
        ({"pace": Pace(0.0, 1.0, None, 1.0, 70.0)}, "33.1% of 37,312 samples"),
        (
            {"pace": NO_PACE, "done": 0, "skipped": 0, "failed": 0, "pending": 37312},
            "0.0% of 37,312 samples, not begun",
        ),
        ({"total": 3, "done": 2, "skipped": 0, "failed": 0, "pending": 1}, "66.6% of 3 samples, about 2 h 17 min left"),
        ({"pending": 0, "failed": 3, "shards_ended": 73}, "ended, 3 samples failed"),
        ({"pending": 0, "failed": 0, "shards_ended": 73}, "complete"),
        ({"pending": 0, "failed": 0, "pace": NO_PACE}, "100.0% of 37,312 samples"),
    ],
)
def test_the_headline_says_how_far_and_how_long(fields: dict[str, object], words: str) -> None:
    assert headline(view(**fields).snapshot) == words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(60, "20:01"), (3 * 3600, "23:00"), (5 * 3600, "Tue 01:00"), (10 * 86400, "10 Dec 20:00")],
)
def test_the_time_has_its_day_where_it_is_another(seconds: float, text: str) -> None:
    assert clock(EVENING, seconds) == text


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "at shard 4, 7"),
        ({"shards": ()}, "at no shard"),
        ({"state": "gone", "seen": 14.0}, "gone for 14 s"),
        ({"state": "paused", "waits_for": "volume"}, "waits for the volume"),
        ({"state": "stopping"}, "ending"),
    ],
)
def test_what_a_worker_does(fields: dict[str, object], words: str) -> None:
    assert doing(worker(**fields)) == words


def test_speed_of_a_run_that_ended_is_its_whole() -> None:
    assert speed(complete().snapshot, EVENING) == "76,102 tokens/s from beginning to end"
    assert speed(view(pace=NO_PACE).snapshot, EVENING) == ""


def test_lines_begin_with_what_is_wrong_and_end_with_what_failed() -> None:
    lines = status_lines(view([worker()], [STALLED], [failed(), skipped()]), EVENING)
    assert lines[0].startswith("run a2156bf0e8: 33.1%")
    assert lines[1] == f"  ! {STALLED.text}"
    assert lines[2] == "  12,345 done, 17 skipped, 3 failed, 24,947 pending of 37,312"
    assert "done at about 22:17" in lines[4]
    assert lines[5].startswith("  gpu0@node0 on http://127.0.0.1:30000 (NVIDIA H200): at shard 4, 7, 20,434 tokens/s")
    assert lines[6] == "  sample 17 failed after 5 requests: DumpMissing: no dump within 60 s"
    assert "hsqueue retry RUN --failed" in lines[8]


def test_one_line_has_the_trouble_too() -> None:
    line = progress_line(view(troubles=[STALLED]).snapshot)
    assert line.startswith("33.1% of 37,312 samples, about 2 h 17 min left, 12,345 done, 17 skipped, 3 failed")
    assert line.endswith(STALLED.text)


def test_a_pipe_gets_a_line_now_and_then_and_at_once_for_a_trouble(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines()
    for shown in (view(), view(), view(troubles=[STALLED]), view(troubles=[STALLED]), view(), complete()):
        lines.show(shown)
    printed = capsys.readouterr().out.splitlines()
    assert [STALLED.text in line for line in printed] == [False, True, False, False]
    assert printed[-1].startswith("complete")
