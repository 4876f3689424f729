"""A secret is in no log line, however it comes into one."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from hsqueue import logs
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
