"""The screen of a run, drawn to text at several widths and heights."""

from __future__ import annotations

import io
from datetime import datetime

import pytest
from rich.console import Console

from hsqueue.cli.screen import screen
from hsqueue.cli.words import View
from hsqueue.monitoring.pace import NO_PACE
from hsqueue.monitoring.troubles import Trouble
from tests.support.views import complete, failed, skipped, view, worker

EVENING = datetime(2026, 11, 30, 20, 0)
GONE = Trouble("worker_gone", "gpu5@node0", "worker gpu5@node0 is gone: not heard of for 14 s; others take over")
WIDTHS = (40, 60, 100, 160)


def drawn(shown: View, width: int = 100, height: int = 40) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, height=height, highlight=False).print(screen(shown, width, height, EVENING))
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    "shown",
    [
        view([worker(k) for k in range(4)]), view([worker()], [GONE], [failed(), skipped()]), complete(),
        view(pace=NO_PACE, done=0, skipped=0, failed=0, pending=37312),
    ],
    ids=["working", "troubled", "complete", "begins"],
)  # fmt: skip
def test_no_line_is_wider_than_the_terminal(shown: View, width: int) -> None:
    assert max(map(len, drawn(shown, width))) <= width


@pytest.mark.parametrize("width", WIDTHS[1:])
def test_everything_that_people_ask_for_is_there(width: int) -> None:
    text = "\n".join(drawn(view([worker(3)], [GONE], [failed()]), width))
    for part in (
        "33.1% of 37,312 samples, about 2 h 17 min left", "81,713", "76,102", "22:17", "226.0 GiB", "12,345",
        "24,947", "gpu3@node0", "shard 7, 10", "20,404", "12", "38%", "now", "is gone", "sample 17 failed",
    ):  # fmt: skip
        assert part in text, part


def test_a_wide_terminal_shows_engine_and_gpu() -> None:
    (line,) = (line for line in drawn(view([worker(3)]), 100) if "gpu3@node0" in line)
    assert "127.0.0.1:30003  NVIDIA H200" in line


def test_troubles_stand_above_the_figures() -> None:
    lines = drawn(view([worker()], [GONE]))
    assert lines.index(next(line for line in lines if "is gone" in line)) == 2


@pytest.mark.parametrize("width", WIDTHS[1:])
@pytest.mark.parametrize("height", [16, 24, 50])
def test_it_fits_into_the_terminal_and_counts_the_workers_left_out(width: int, height: int) -> None:
    lines = drawn(view([worker(k) for k in range(64)], [GONE]), width, height)
    assert len(lines) <= height
    shown = [line for line in lines if "@node" in line and "is gone" not in line]
    assert shown
    assert any(f"and {64 - len(shown)} more" in line for line in lines)


def test_of_many_workers_those_in_trouble_are_shown_then_the_slowest() -> None:
    lines = drawn(view([worker(k) for k in range(64)], [GONE]), height=16)
    names = [line.split()[0] for line in lines if "@node" in line and "is gone" not in line]
    assert names[:3] == ["gpu5@node0", "gpu63@node7", "gpu62@node7"]


def test_few_workers_stay_in_order() -> None:
    lines = drawn(view([worker(k) for k in range(4)], [GONE]))
    assert [line.split()[0] for line in lines if line.startswith(" gpu")] == [f"gpu{k}@node0" for k in range(4)]


def test_the_bar_is_full_only_when_everything_has_ended() -> None:
    almost = view(total=1000, done=999, skipped=0, failed=0, pending=1, troubles=())
    assert "─" in drawn(almost)[1]
    assert "─" not in drawn(complete())[1]
    assert "99.9%" in drawn(almost)[0]


def test_what_comes_from_elsewhere_steers_no_terminal() -> None:
    evil = "\x1b[2J\x1b]0;title\x07[bold]x[/bold]\r\n"
    shown = view(
        [worker(name=evil, engine=evil, gpu=evil)], [Trouble("engine_down", evil, evil)], [failed(detail=evil)]
    )
    for width in WIDTHS:
        lines = drawn(shown, width)
        assert not {"\x1b", "\x07", "\r"} & set("".join(lines))
        assert "[bold]x" in "".join(lines), "no markup either"
