"""Celery's consumer, behind a door: only hsqueue's own message gets through, whatever else lies in the queue.

Without it Celery runs any task that it knows by name, follows callbacks that a message names, and ends the whole worker
over a body of another form, which then waits in the queue for the next worker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from celery.worker.consumer import Consumer

from hsqueue.contracts.errors import UsageError
from hsqueue.contracts.message import TASK_NAME, ShardMessage

log = logging.getLogger(__name__)


class CarefulConsumer(Consumer):  # type: ignore[misc]
    """Refused messages are acknowledged and gone; a shard that was meant by one is sent again by the reaper."""

    def create_task_handler(self, *args: Any, **options: Any) -> Callable[[Any], Any]:
        handle: Callable[[Any], Any] = super().create_task_handler(*args, **options)

        def careful(message: Any) -> Any:
            try:
                require_ours(message)
            except UsageError as error:
                log.error("a message is refused: %s", error)
                return message.ack_log_error(log, self.connection_errors)
            return handle(message)

        return careful


def require_ours(message: Any) -> None:
    """message: kombu's. Raises UsageError unless it is what ``hsqueue.queue.producer`` sends, in every part."""
    headers, kind = message.headers, message.content_type
    if kind != "application/json":
        raise UsageError("not JSON", found=repr(kind)[:60])
    task = headers.get("task") if isinstance(headers, dict) else None
    if task != TASK_NAME:
        raise UsageError("another task", expected=TASK_NAME, found=repr(task)[:60])
    try:
        positional, kwargs, embedded = message.decode()
        follow_ups = [name for name, value in dict(embedded or {}).items() if value]
    except Exception as error:  # noqa: BLE001 - decoding fails in as many ways as there are bytes
        raise UsageError(f"a body that cannot be read ({type(error).__name__})") from None
    if positional or follow_ups or not isinstance(kwargs, dict):
        raise UsageError("a body of another form", found=repr((positional, follow_ups))[:60])
    ShardMessage.from_kwargs(kwargs)
