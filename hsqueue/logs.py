"""Log lines: one an event, for people by default, JSON by choice."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterable
from urllib.parse import quote


class HumanFormatter(logging.Formatter):
    """``12:34:56 WARNING hsworker.shard: message``"""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S")


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
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


def configure(form: str, level: int | str, secrets: Iterable[str] = ()) -> None:
    """Sends all logging to standard error. form: ``human`` or ``json``. secrets: appear in no line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Hiding(JsonFormatter() if form == "json" else HumanFormatter(), secrets))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for noisy in ("urllib3", "kombu", "amqp"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
