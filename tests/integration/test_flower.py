"""Flower behind its password, with a run of its own to look at, and its end."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path
from urllib.parse import urlencode

import requests

from hsqueue.contracts.message import TASK_NAME
from hsqueue.queue.app import make_app
from tests.support.cli import command, hsqueue
from tests.support.engine import environment
from tests.support.flower import flower
from tests.support.redis import RedisServer, free_port, redis_server
from tests.support.waiting import await_true


def test_flower_asks_for_its_password_and_ends_when_asked(tmp_path: Path) -> None:
    port = free_port()
    with redis_server(tmp_path) as redis:
        process = subprocess.Popen(
            command("flower", "--port", str(port), "--read-only"), stdout=subprocess.PIPE, text=True,
            stderr=subprocess.STDOUT, env={**environment(), "HSQ_REDIS_URL": redis.url, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        assert process.stdout is not None
        first = process.stdout.readline()
        shown = re.fullmatch(r"user (\S+), password (\S+) \(.*\)\n", first)
        assert shown is not None, first
        while "Visit me at" not in (line := process.stdout.readline()):
            assert line, "Flower ended"
        page = f"http://127.0.0.1:{port}/workers"
        assert requests.get(page, timeout=20).status_code == 401
        assert requests.get(page, auth=("hsqueue", "wrong"), timeout=20).status_code == 401
        assert requests.get(page, auth=(shown[1], shown[2]), timeout=20).status_code == 200
        taken = hsqueue("flower", "--port", str(port), env={"HSQ_REDIS_URL": redis.url})
        assert taken.status == 2
        assert "cannot listen" in taken.err
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 3


def test_each_filter_lists_what_the_list_shows_under_its_name(tmp_path: Path, redis: RedisServer) -> None:
    port = free_port()
    results = {"a": "'64/64 done'", "b": "'handed back: the worker is paused or stopping'"}
    env = {"HSQ_REDIS_URL": redis.url, "HSQ_FLOWER_PASSWORD": "of-flower"}
    with make_app(redis.url) as app, flower(port, tmp_path / "flower.log", env) as page:

        def listed(state: str) -> set[tuple[str, str]]:
            query = {
                "draw": 1, "start": 0, "length": 9, "search[value]": f"state:{state}", "order[0][column]": 0,
                "columns[0][data]": "state",
            }  # fmt: skip
            found = json.loads(page(f"tasks/datatable?{urlencode(query)}"))["data"]
            return {(task["uuid"], task["state"]) for task in found}

        def tell() -> None:
            with app.events.default_dispatcher(hostname="gpu0@node") as dispatcher:
                for uuid, result in results.items():
                    dispatcher.send("task-received", uuid=uuid, name=TASK_NAME, kwargs="{}", args="()")
                    dispatcher.send("task-succeeded", uuid=uuid, result=result, runtime=1.0)

        # Told again until Flower listens.
        await_true(lambda: len(listed("SUCCESS")) + len(listed("RETRY")) == 2, "Flower hears nothing", meanwhile=tell)
        assert listed("SUCCESS") == {("a", "SUCCESS")}
        assert listed("RETRY") == {("b", "RETRY")}
