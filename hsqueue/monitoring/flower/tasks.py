"""How Flower shows a shard's task: its run and shard in words, its progress, and why it failed."""

from __future__ import annotations

import ast
import re
from typing import Any

from hsqueue.contracts.errors import UsageError
from hsqueue.contracts.message import TASK_NAME, ShardMessage

COLUMNS = "uuid,state,kwargs,result,worker,args,runtime,received"
LABELS = {"uuid": "Task", "kwargs": "Shard", "result": "Progress", "args": "Engine"}
"""Only Celery's standard fields reach the page; these say what they hold for a shard."""

SENT_AGAIN = re.compile(r"handed back: |[^;]*; stopped: ")
"""Begins the result of a task whose shard goes on in another one."""

CALL = re.compile(r"[A-Za-z_]\w*\((.*?),?\)", re.DOTALL)


def format_task(task: Any) -> Any:
    """Changes a copy of Celery's task for people; what Flower searches stays as it is."""
    if task.name != TASK_NAME:
        return task
    task.kwargs = shard_text(task.kwargs)
    task.args = "" if task.args in (None, "()", "[]") else unquoted(task.args)
    task.result = unquoted(task.exception) if task.state == "FAILURE" else unquoted(task.result)
    return task


def in_flowers_terms(event: dict[str, Any]) -> dict[str, Any]:
    """Celery's event of a task that ended with its shard going on in another one, as that of a task tried again."""
    if event["type"] == "task-succeeded" and SENT_AGAIN.match(unquoted(event.get("result"))):
        return {**event, "type": "task-retried"}
    return event


def shard_text(kwargs: object) -> str:
    """The message's arguments, as Celery writes them, in words; what is no message of ours stays as it is."""
    try:
        message = ShardMessage.from_kwargs(ast.literal_eval(str(kwargs)))
    except (ValueError, SyntaxError, TypeError, AttributeError, MemoryError, RecursionError, UsageError):
        return "" if kwargs is None else str(kwargs)
    return f"{message.run}, shard {message.shard}"


def unquoted(value: object) -> str:
    """A result or an error without the quotes, and the class name, that Celery writes around its text."""
    text = "" if value is None else str(value)
    called = CALL.fullmatch(text)
    try:
        found = ast.literal_eval(called[1] if called else text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return found if isinstance(found, str) else text
