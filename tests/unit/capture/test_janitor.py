from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hscapture.janitor import Janitor, remove_unread
from hscapture.ridlayout import RidLayout
from hscapture.writer import DumpWriter
from tests.support.waiting import await_true
from tests.unit.capture.states import make_card, make_dump

WAIT = 60.0


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def age(path: Path, seconds: float) -> None:
    os.utime(path, (time.time() - seconds,) * 2)


@pytest.fixture
def layout(tmp_path: Path) -> RidLayout:
    return RidLayout(tmp_path, make_card())


@pytest.fixture
def janitor(tmp_path: Path) -> Iterator[Janitor]:
    one = Janitor(tmp_path)
    yield one
    one.close(WAIT)


def test_what_lies_unread_too_long_goes_and_nothing_else(tmp_path: Path, layout: RidLayout) -> None:
    for rid in ("old", "new"):
        layout.write(make_dump(rid, [1]))
    foreign = ("req_7", ".hsqueue", "other")
    for name in (*foreign, "req_empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "req_7" / "meta.json").touch()
    (tmp_path / "engine.json").touch()
    for path in tmp_path.iterdir():
        if path.name != "req_new":
            age(path, 100)
    assert remove_unread(tmp_path, 50) == 2
    assert names(tmp_path) == sorted([*foreign, "engine.json", "req_new"])


def test_it_looks_by_itself(tmp_path: Path, layout: RidLayout) -> None:
    layout.write(make_dump("a", [1]))
    janitor = Janitor(tmp_path, ttl=0.1)
    await_true(lambda: names(tmp_path) == [], "the dump is still there")
    janitor.close(WAIT)


def test_it_outlives_a_directory_that_is_gone(tmp_path: Path) -> None:
    janitor = Janitor(tmp_path / "gone", ttl=0.01)
    janitor.remove("a")
    janitor.remove("../evil")
    (tmp_path / "evil").mkdir()
    janitor.close(WAIT)
    assert names(tmp_path) == ["evil"]


def test_an_aborted_request_leaves_no_written_dump(tmp_path: Path, layout: RidLayout, janitor: Janitor) -> None:
    writer = DumpWriter(layout.write, remove=janitor.remove)
    for rid in ("a", "ab"):
        writer.submit(make_dump(rid, [1]))
    assert writer.drain(WAIT)
    writer.discard("a")
    writer.discard("unknown")
    janitor.close(WAIT)
    assert names(tmp_path) == ["req_ab"]


def test_an_aborted_request_leaves_no_dump_that_waits_or_is_being_written(
    tmp_path: Path, layout: RidLayout, janitor: Janitor
) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def write(dump: object) -> None:
        entered.set()
        assert go_on.wait(WAIT)
        layout.write(dump)  # type: ignore[arg-type]

    writer = DumpWriter(write, remove=janitor.remove)
    writer.submit(make_dump("writing", [1]))
    assert entered.wait(WAIT)
    writer.submit(make_dump("waiting", [1]))
    writer.submit(make_dump("wanted", [1]))
    writer.discard("writing")
    writer.discard("waiting")
    go_on.set()
    assert writer.drain(WAIT)
    janitor.close(WAIT)
    assert names(tmp_path) == ["req_wanted"]
    assert writer.stats.written == 2


def test_a_later_request_of_the_same_id_is_written(tmp_path: Path, layout: RidLayout, janitor: Janitor) -> None:
    writer = DumpWriter(layout.write, remove=janitor.remove)
    writer.discard("a")
    janitor.close(WAIT)
    writer.submit(make_dump("a", [1]))
    assert writer.drain(WAIT)
    assert names(tmp_path) == ["req_a"]
