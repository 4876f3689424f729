"""Puts hsqueue's pages and settings into Flower, before Flower builds its application.

Flower has no such interface: what is touched here is why its version is pinned, and tests hold every part in a browser.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from celery import states
from celery.events.state import TASK_EVENT_TO_STATE
from flower import urls
from flower.events import EventsState
from flower.views import BaseHandler
from flower.views.monitor import Metrics
from flower.views.tasks import TASK_COLUMNS
from tornado.options import options
from tornado.web import authenticated

from hsqueue.monitoring.flower.handlers import handlers
from hsqueue.monitoring.flower.loader import Loader
from hsqueue.monitoring.flower.source import Source
from hsqueue.monitoring.flower.tasks import COLUMNS, LABELS, format_task, in_flowers_terms

POLICY = "; ".join((
    "default-src 'none'", "script-src 'self'", "style-src 'self' 'unsafe-inline'", "img-src 'self' data:",
    "font-src 'self'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
))  # fmt: skip
"""Names and errors that Flower shows come from outside; a script among them would find no way to run.
Flower's tables set style attributes, so styles alone may be inline."""


def install(redis_url: str) -> None:
    """redis_url: of the ledger that the pages show. Raises UsageError where Flower is not the one we know."""
    # The only page with figures that Flower itself leaves open; Prometheus can say a password.
    Metrics.get = authenticated(Metrics.get)
    urls.settings["template_loader"] = Loader(Path(urls.settings["template_path"]))
    urls.settings["compress_response"] = True
    urls.handlers[:0] = handlers(Source(redis_url))
    _set_policy()
    # Progress is no state of its own: to those who filter, the task has started.
    TASK_EVENT_TO_STATE["progress"] = states.STARTED
    _set_events()
    TASK_COLUMNS.update(LABELS)
    options.tasks_columns = COLUMNS
    options.format_task = format_task
    options.natural_time = True


def _set_events() -> None:
    before = EventsState.event

    def event(self: EventsState, event: dict[str, Any]) -> None:
        before(self, in_flowers_terms(event))

    EventsState.event = event


def _set_policy() -> None:
    before = BaseHandler.set_default_headers

    def set_default_headers(self: BaseHandler) -> None:
        before(self)
        self.set_header("Content-Security-Policy", POLICY)
        self.set_header("Referrer-Policy", "no-referrer")

    BaseHandler.set_default_headers = set_default_headers
