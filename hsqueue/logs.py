"""Log lines: one an event, for people by default, JSON by choice."""

from __future__ import annotations

import json
import logging
import sys
import time


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


def configure(form: str, level: int | str) -> None:
    """Sends all logging to standard error. form: ``human`` or ``json``."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else HumanFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for noisy in ("urllib3", "kombu", "amqp"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
