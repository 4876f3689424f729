"""The passwords of a real run, at the lowest level of logging, appear nowhere that others may look."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import requests

from tests.support.cli import QUICK, hsqueue
from tests.support.engine import engine, environment
from tests.support.flower import flower
from tests.support.prompts import token_prompts
from tests.support.redis import free_port, redis_server

OF_FLOWER = "flower-s3cret-91c2"


@contextmanager
def command_lines() -> Iterator[set[str]]:
    """Of every process that this user can see while it lasts."""
    seen: set[str] = set()
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.02):
            for process in psutil.process_iter(["cmdline", "name"]):
                seen.add(" ".join(process.info["cmdline"] or [process.info["name"] or ""]))

    thread = threading.Thread(target=look)
    thread.start()
    yield seen
    done.set()
    thread.join()


def test_no_password_is_shown_anywhere(tmp_path: Path) -> None:
    root, port, shown = tmp_path / "run", free_port(), {}
    with redis_server(tmp_path / "redis") as redis, engine(tmp_path) as one, command_lines() as lines:
        env = {"HSQ_REDIS_URL": redis.url, "HSQ_FLOWER_PASSWORD": OF_FLOWER}
        secrets = (redis.password, OF_FLOWER)
        source = ("--engine", one.url, "--dump-dir", one.dump_dir)
        with flower(port, tmp_path / "flower.log", env) as page, worker(tmp_path, one, env):
            prompts = token_prompts(tmp_path / "prompts.jsonl", [20] * 12)
            for words in (
                ("plan", prompts, "--out", root, "--shard-size", "4", *source), ("enqueue", root),
                ("run", prompts, "--out", root, "--shard-size", "4", *source), ("status", root, "--json"),
                ("status", root), ("doctor", *source, "--run", root), ("ledger", "show", root), ("verify", root),
                ("retry", root), ("--help",),
            ):  # fmt: skip
                result = hsqueue("--verbose", *words, env=env)
                shown[" ".join(map(str, words))] = result.text
            for name in ("workers", "tasks", "broker", f"worker/gpu0@{os.uname().nodename}", "metrics", "api/workers"):
                shown[f"page {name}"] = page(name) if not name.startswith("worker/") else worker_page(port, name)
        wrong = redis.url.replace(redis.password, "wr0ng-s3cret")
        shown["wrong password"] = hsqueue("--verbose", "status", root, env={"HSQ_REDIS_URL": wrong}).text
        redis.kill()
        shown["no Redis"] = hsqueue("--verbose", "enqueue", root, env=env).text
        redis.start()
    for path in (*tmp_path.rglob("*.log"), *root.rglob("*.json"), one.dump_dir / "engine.json"):
        shown[str(path)] = path.read_text(errors="replace")
    shown["processes"] = "\n".join(lines)
    assert "celery" in shown["processes"] or "hsworker" in shown["processes"]
    assert "transport:" in shown[str(tmp_path / "worker.log")], "Celery's banner is missing"
    assert "DEBUG" in shown[str(tmp_path / "worker.log")]
    for secret in (*secrets, "wr0ng-s3cret"):
        assert [name for name, text in shown.items() if secret in text] == []
    assert '"done": 12' in shown[f"status {root} --json"].replace('"done":12', '"done": 12')


def worker_page(port: int, name: str) -> str:
    """Also shows the settings of the worker's Celery, among them its broker."""
    answer = requests.get(f"http://127.0.0.1:{port}/{name}", auth=("hsqueue", OF_FLOWER), timeout=60)
    return answer.text


@contextmanager
def worker(place: Path, one: object, env: dict[str, str]) -> Iterator[None]:
    """Celery's worker as hsqueue starts it, and at DEBUG."""
    own = {
        "HSQ_ENGINE_URL": one.url, "HSQ_DUMP_DIR": str(one.dump_dir), "HSQ_WORKER_NAME": "gpu0", **QUICK, **env,  # type: ignore[attr-defined]
    }  # fmt: skip
    from hsqueue.planning.target import read_card

    (one.dump_dir / ".hsqueue").mkdir(mode=0o700, exist_ok=True)  # type: ignore[attr-defined]
    queue = read_card(one.dump_dir).target.queue  # type: ignore[attr-defined]
    words = [
        sys.executable, "-m", "celery", "-A", "hsworker.celery", "worker", "--concurrency=2", f"--queues={queue}",
        "--hostname=gpu0@%h", "--loglevel=DEBUG",
    ]  # fmt: skip
    with (place / "worker.log").open("wb") as log:
        process = subprocess.Popen(
            words, env={**environment(), **own}, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)
