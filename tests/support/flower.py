"""``hsqueue flower`` as a process of its own."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import requests

from tests.support.cli import start
from tests.support.waiting import await_true


@contextlib.contextmanager
def flower(port: int, log: Path, env: Mapping[str, str], *options: str) -> Iterator[Callable[[str], str]]:
    """Flower, once it answers; yields a function that fetches a page with the password of `env`."""
    process = start("flower", "--port", str(port), *options, log=log, env=env)

    def page(name: str) -> str:
        login = ("hsqueue", env["HSQ_FLOWER_PASSWORD"])
        answer = requests.get(f"http://127.0.0.1:{port}/{name}", auth=login, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.text

    try:
        await_true(lambda: _answers(port, process, log), "Flower does not answer")
        yield page
    finally:
        process.terminate()
        process.wait(30)


def _answers(port: int, process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    try:
        return requests.get(f"http://127.0.0.1:{port}/healthcheck", timeout=30).status_code == 200
    except requests.ConnectionError:
        return False
