"""A secret is in no log line, however it comes into one."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Callable, Iterator
from urllib.parse import quote

import pytest

from hsqueue import logs
from hsqueue.contracts.rid import RequestId
from hsqueue.settings import load_settings

SECRET = 'p4ss/w"ö rd'


@pytest.fixture(params=["human", "json"])
def written(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    before = logging.root.handlers[:], logging.root.level
    logs.configure(request.param, "DEBUG", [SECRET])
    yield stream
    logging.root.handlers[:], _ = before
    logging.root.setLevel(before[1])


def test_neither_plain_nor_quoted_nor_in_a_traceback(written: io.StringIO) -> None:
    log = logging.getLogger("test")
    log.debug("connecting to redis://:%s@h, redis://:%s@h, %r", SECRET, quote(SECRET, safe=""), {"password": SECRET})
    try:
        raise ValueError(f"login {SECRET}")
    except ValueError:
        log.exception("failed with %s", SECRET)
    text = written.getvalue()
    assert text.count("***") >= 4
    for form in (SECRET, quote(SECRET), quote(SECRET, safe=""), json.dumps(SECRET)[1:-1]):
        assert form not in text


def test_without_secrets_lines_are_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    before = logging.root.handlers[:]
    logs.configure("human", "INFO", ["", SECRET])
    logging.getLogger("test").info("plain words")
    logging.root.handlers[:] = before
    assert stream.getvalue().endswith("INFO test: plain words\n")


def test_both_passwords_are_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HSQ_REDIS_URL", f"redis://user:{quote(SECRET, safe='')}@h:1/0")
    monkeypatch.setenv("HSQ_FLOWER_PASSWORD", "of-flower")
    assert load_settings().secrets == (SECRET, "of-flower")
    assert SECRET not in repr(load_settings())
    assert "of-flower" not in str(load_settings())


def said(written: io.StringIO) -> dict[str, object]:
    """The only line, as JSON."""
    (line,) = written.getvalue().splitlines()
    found: dict[str, object] = json.loads(line)
    return found


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], io.StringIO]]:
    """Sends log lines of a form into a string; the worker's name is in each."""
    before = logging.root.handlers[:], logging.root.level

    def configure(form: str) -> io.StringIO:
        stream = io.StringIO()
        monkeypatch.setattr("sys.stderr", stream)
        logs.configure(form, "INFO", worker="gpu0@node")
        return stream

    yield configure
    logging.root.handlers[:] = before[0]
    logging.root.setLevel(before[1])


def test_what_a_line_is_about_is_in_fields(lines: Callable[[str], io.StringIO]) -> None:
    stream = lines("json")
    rid = RequestId("r1", 12, 5, 0)
    with logs.about(run="r1"), logs.about(shard=3):
        logging.getLogger("test").warning("late", extra={"index": 12, "rid": rid})
    found = said(stream)
    assert {name: found[name] for name in logs.FIELDS} == {
        "run": "r1", "shard": 3, "index": 12, "rid": "hsq.r1.12.5.0", "worker": "gpu0@node",
    }  # fmt: skip
    assert list(found) == ["time", "level", "logger", "message", *logs.FIELDS]


def test_a_line_about_nothing_has_no_fields(lines: Callable[[str], io.StringIO]) -> None:
    stream = lines("json")
    with logs.about(run="r1"):
        pass
    logging.getLogger("test").warning("late")
    assert set(said(stream)) == {"time", "level", "logger", "message", "worker"}


def test_other_threads_are_about_something_else(lines: Callable[[str], io.StringIO]) -> None:
    stream = lines("json")
    with logs.about(run="r1"):
        thread = threading.Thread(target=lambda: logging.getLogger("test").warning("late"))
        thread.start()
        thread.join()
    assert "run" not in said(stream)


def test_people_read_what_the_message_does_not_say(lines: Callable[[str], io.StringIO]) -> None:
    stream = lines("human")
    with logs.about(run="r1", shard=3):
        logging.getLogger("test").warning("run %s: late", "r1")
    assert stream.getvalue().endswith(" WARNING test: run r1: late (shard 3)\n")


@pytest.mark.parametrize("form", ["human", "json"])
def test_an_event_is_one_line(lines: Callable[[str], io.StringIO], form: str) -> None:
    stream = lines(form)
    logging.getLogger("test").warning("first\nsecond\r\n12:00:00 INFO forged: third")
    assert len(stream.getvalue().splitlines()) == 1


def test_a_traceback_in_json_is_within_the_line(lines: Callable[[str], io.StringIO]) -> None:
    stream = lines("json")
    try:
        raise ValueError("why")
    except ValueError:
        logging.getLogger("test").exception("failed")
    assert "ValueError: why" in str(said(stream)["exception"])
