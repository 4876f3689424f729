"""Log lines: one an event, for people by default, JSON by choice.

What a line is about stands in fields of its own as well: ``with about(run=…, shard=…)`` around the work, or
``extra={"index": …}`` for one line.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from urllib.parse import quote

FIELDS = ("run", "shard", "index", "rid", "worker")
"""What a line may be about: a run's id, a shard, a sample's index, a request's id, a worker's name."""

_about: ContextVar[Mapping[str, object]] = ContextVar("about", default=MappingProxyType({}))


@contextmanager
def about(**fields: object) -> Iterator[None]:
    """Every line of this thread within it has these `fields`, some of FIELDS."""
    token = _about.set({**_about.get(), **fields})
    try:
        yield
    finally:
        _about.reset(token)


class Fields(logging.Filter):
    """Adds to a record what its line is about. always: fields of every line of this process."""

    def __init__(self, always: Mapping[str, object]) -> None:
        super().__init__()
        self.always = always

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in {**self.always, **_about.get()}.items():
            record.__dict__.setdefault(name, value)
        return True


def _fields(record: logging.LogRecord) -> dict[str, object]:
    found = {name: getattr(record, name, None) for name in FIELDS}
    return {n: v if isinstance(v, int) else str(v) for n, v in found.items() if v is not None}


class HumanFormatter(logging.Formatter):
    """``12:34:56 WARNING hsworker.shard: message (run r1, shard 3)``, with what the message does not say itself."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        # A message is one line, whatever a library or a server put into it.
        record.message = " ".join(record.message.splitlines())
        said = set(re.findall(r"[\w.@-]+", record.message))
        left = {n: v for n, v in _fields(record).items() if n != "worker" and str(v) not in said}
        more = ", ".join(f"{name} {value}" for name, value in left.items())
        return super().formatMessage(record) + (f" ({more})" if more else "")


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


class Hiding(logging.Formatter):
    """What `inner` makes of a record, tracebacks included, with three stars in place of every secret."""

    def __init__(self, inner: logging.Formatter, secrets: Iterable[str]) -> None:
        super().__init__()
        self.inner = inner
        forms = {form for s in secrets for form in (s, quote(s, safe=""), quote(s), json.dumps(s)[1:-1], repr(s)[1:-1])}
        # The longest first: one form may be the beginning of another.
        self.forms = sorted(filter(None, forms), key=len, reverse=True)

    def format(self, record: logging.LogRecord) -> str:
        line = self.inner.format(record)
        for form in self.forms:
            line = line.replace(form, "***")
        return line


def say_past_logging(message: str, *_: object) -> None:
    """Writes one line in the form that was configured, as a signal handler may: no stream and no lock is touched."""
    (handler,) = logging.getLogger().handlers
    record = logging.makeLogRecord({"name": "celery.worker", "levelname": "INFO", "msg": message})
    handler.filter(record)
    os.write(sys.stderr.fileno(), f"{handler.format(record)}\n".encode())


def configure(form: str, level: int | str, secrets: Iterable[str] = (), **always: object) -> None:
    """Sends all logging to standard error. form: ``human`` or ``json``. secrets: appear in no line.
    always: fields of every line.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(Fields(always))
    handler.setFormatter(Hiding(JsonFormatter() if form == "json" else HumanFormatter(), secrets))
    # Libraries' warnings would be lines of no form.
    logging.captureWarnings(form == "json")
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for noisy in ("urllib3", "kombu", "amqp"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
