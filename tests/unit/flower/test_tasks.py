"""A shard's task in words: what Celery's monitor holds, through Flower's formatter."""

from __future__ import annotations

import pytest
from celery.events.state import State, Task

from hsqueue.contracts.message import TASK_NAME, ShardMessage
from hsqueue.monitoring.flower.tasks import format_task, in_flowers_terms, shard_text, unquoted

KWARGS = str(ShardMessage("r1", 7, 64).to_kwargs())


def shown(state: str, **fields: object) -> Task:
    return format_task(
        Task(uuid="r1.7.a0", **{"name": TASK_NAME, "kwargs": KWARGS, "args": "()", **fields}, state=state)
    )


def test_a_task_under_way() -> None:
    task = shown("STARTED", result="37/64 samples, 1,234 tokens/s", args="http://127.0.0.1:30000")
    assert task.kwargs == "r1, shard 7"
    assert task.result == "37/64 samples, 1,234 tokens/s"
    assert task.args == "http://127.0.0.1:30000"
    assert task.state == "STARTED"


def test_a_waiting_task_has_no_engine_and_no_progress() -> None:
    task = shown("RECEIVED")
    assert (task.args, task.result) == ("", "")


def test_a_failed_shard_says_why() -> None:
    task = shown("FAILURE", exception='SamplesFailed("60/64 done, 4 failed: 4 DumpMismatch; sample 3: it\'s wrong")')
    assert task.result == "60/64 done, 4 failed: 4 DumpMismatch; sample 3: it's wrong"
    assert task.state == "FAILURE"


@pytest.mark.parametrize(
    ("result", "state"),
    [
        ("'64/64 done'", "SUCCESS"),
        ("'63/64 done, 1 skipped; afterwards: the worker was asked to end'", "SUCCESS"),
        ("'skipped: ended'", "SUCCESS"),
        ("'37/64 done; stopped: the engine does not answer'", "RETRY"),
        ("'handed back: the worker is paused or stopping'", "RETRY"),
    ],
)
def test_a_shard_that_goes_on_elsewhere_is_no_success(result: str, state: str) -> None:
    known = State()
    common = {"uuid": "a", "hostname": "gpu0@n", "timestamp": 1.0, "local_received": 1.0, "clock": 1}
    for event in ({"type": "task-started"}, {"type": "task-succeeded", "result": result, "runtime": 1.0}):
        known.event(in_flowers_terms({**common, **event}))
    task = known.tasks["a"]
    assert (task.state, task.runtime) == (state, 1.0)
    task.name = TASK_NAME
    assert format_task(task).result == result.strip("'")


def test_another_task_stays_as_it_is() -> None:
    task = format_task(Task(uuid="x", name="other", kwargs="{'a': 1}", args="(1,)", result="'x'", state="SUCCESS"))
    assert (task.kwargs, task.args, task.result) == ("{'a': 1}", "(1,)", "'x'")


@pytest.mark.parametrize(
    "kwargs",
    ["", "{", "[]", "{'run': '<b>', 'shard': 1, 'n': 1}", "{'run': 'r', 'shard': -1}", "(" * 5000, "…", "None"],
)
def test_kwargs_that_are_no_message_stay_as_they_are(kwargs: str) -> None:
    assert shard_text(kwargs) == kwargs


def test_no_kwargs() -> None:
    assert shard_text(None) == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""), ("'a'", "a"), ("plain", "plain"), ("'cut", "'cut"), ("Error('x')", "x"), ("Error('x',)", "x"),
        ("Error(1)", "Error(1)"), ("[1]", "[1]"), ("f('a') + g('b')", "f('a') + g('b')"),
    ],
)  # fmt: skip
def test_unquoted(value: object, text: str) -> None:
    assert unquoted(value) == text
