"""Flower behind its password, with a run of its own to look at, and its end."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
from pathlib import Path

import requests

from tests.support.cli import command, hsqueue
from tests.support.engine import environment
from tests.support.redis import redis_server


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_flower_asks_for_its_password_and_ends_when_asked(tmp_path: Path) -> None:
    port = free_port()
    with redis_server(tmp_path) as redis:
        flower = subprocess.Popen(
            command("flower", "--port", str(port), "--read-only"), stdout=subprocess.PIPE, text=True,
            stderr=subprocess.STDOUT, env={**environment(), "HSQ_REDIS_URL": redis.url, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        assert flower.stdout is not None
        first = flower.stdout.readline()
        shown = re.fullmatch(r"user (\S+), password (\S+) \(.*\)\n", first)
        assert shown is not None, first
        while "Visit me at" not in (line := flower.stdout.readline()):
            assert line, "Flower ended"
        page = f"http://127.0.0.1:{port}/workers"
        assert requests.get(page, timeout=20).status_code == 401
        assert requests.get(page, auth=("hsqueue", "wrong"), timeout=20).status_code == 401
        assert requests.get(page, auth=(shown[1], shown[2]), timeout=20).status_code == 200
        taken = hsqueue("flower", "--port", str(port), env={"HSQ_REDIS_URL": redis.url})
        assert taken.status == 2
        assert "cannot listen" in taken.err
        flower.send_signal(signal.SIGTERM)
        assert flower.wait(20) == 3
