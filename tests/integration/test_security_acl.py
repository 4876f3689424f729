"""The user of ops/redis-users.acl can do all that hsqueue does, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis as redis_py
from prometheus_client import CollectorRegistry, generate_latest
from redis.exceptions import NoPermissionError, ResponseError

from hsqueue.ledger.connect import connect
from hsqueue.monitoring.exporter import Exporter
from hsqueue.queue.app import make_app
from tests.support.cli import hsqueue
from tests.support.flower import flower
from tests.support.prompts import published, token_prompts
from tests.support.redis import RedisServer, free_port

PASSWORD = "of-the-user"
RULES = Path(__file__).resolve().parents[2].joinpath("ops/redis-users.acl").read_text().split("user hsqueue on ")[1]


@pytest.fixture
def url(redis: RedisServer) -> Iterator[str]:
    """Of the example's user, with a password in place of its zeros."""
    _, _, rest = RULES.partition(" ")
    admin = redis.client()
    admin.execute_command("ACL", "SETUSER", "hsqueue", "reset", "on", f">{PASSWORD}", *rest.split())
    admin.execute_command("ACL", "LOG", "RESET")
    yield f"redis://hsqueue:{PASSWORD}@127.0.0.1:{redis.port}/0"
    admin.execute_command("ACL", "DELUSER", "hsqueue")
    admin.close()


def refused(redis: RedisServer) -> list[str]:
    """What the server has refused the user since it was made."""
    client = redis_py.Redis.from_url(redis.url, decode_responses=True)
    found: Any = client.execute_command("ACL", "LOG", "100")
    client.close()
    return [str(entry) for entry in found]


def metrics(url: str) -> str:
    """As a scrape of the exporter has them."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Exporter(connect(url), url))
    return generate_latest(registry).decode()


def test_a_whole_run_every_command_and_flower_need_no_more_than_the_user_may(
    redis: RedisServer, url: str, tmp_path: Path
) -> None:
    root = tmp_path / "run"
    env = {"HSQ_REDIS_URL": url, "HSQ_FLOWER_PASSWORD": "of-flower"}
    port = free_port()
    with flower(port, tmp_path / "flower.log", env) as page:
        prompts = token_prompts(tmp_path / "prompts.jsonl", [20] * 24)
        result = hsqueue("run", prompts, "--out", root, "--shard-size", "4", env=env)
        assert result.status == 0, result.text
        assert published(root) == set(range(24))
        assert "gpu0@" in page("workers")
        assert page("tasks")
        assert page("broker")
        assert '"error"' not in page("api/samples")
    (root / "samples/000/000001/000000000005.safetensors").unlink()
    for command, status in (
        (("status", root, "--json"), 0), (("ledger", "show", root), 0), (("ledger", "get", root, "p3"), 0),
        (("verify", root, "--repair"), 3), (("enqueue", root), 0), (("ledger", "rebuild", root), 0),
        (("retry", root), 0), (("report", root, "-o", tmp_path / "report.html"), 0), (("clean", root), 0),
    ):  # fmt: skip
        result = hsqueue(*command, env=env)
        assert result.status == status, (command, result.text)
    assert "hsqueue_redis_up 1.0" in metrics(url)
    assert "BAD   redis" not in hsqueue("doctor", "--run", root, env=env).text
    assert refused(redis) == []


def test_remote_control_of_workers_and_fetching_by_hand_are_allowed(redis: RedisServer, url: str) -> None:
    app = make_app(url)
    assert app.control.ping(timeout=0.2) == []
    with app.connection_for_write() as connection, connection.SimpleQueue("hsq.q") as queue:
        queue.put({"shard": 1}, serializer="json")
        message = queue.get(timeout=10)
        message.requeue()
        queue.get(timeout=10).ack()
    assert refused(redis) == []


@pytest.mark.parametrize(
    "command",
    [
        ["FLUSHALL"], ["FLUSHDB"], ["CONFIG", "GET", "*"], ["CONFIG", "SET", "dir", "/"], ["KEYS", "*"], ["SCAN", "0"],
        ["RANDOMKEY"], ["DBSIZE"], ["ACL", "LIST"], ["MONITOR"], ["CLIENT", "LIST"], ["CLIENT", "KILL", "ID", "1"],
        ["SHUTDOWN"], ["REPLICAOF", "h", "1"], ["MODULE", "LIST"], ["SCRIPT", "FLUSH"],
        ["FUNCTION", "LIST"], ["SORT", "hsq:x"], ["MIGRATE", "h", "1", "hsq:x", "0", "1"], ["SAVE"],
        ["SWAPDB", "0", "1"],
        ["GET", "other"], ["SET", "other", "1"], ["DEL", "other"], ["LPUSH", "celery", "x"], ["BRPOP", "celery", "1"],
        ["PUBLISH", "other", "x"], ["SUBSCRIBE", "other"], ["PSUBSCRIBE", "*"],
        ["EVAL", "return redis.call('GET', KEYS[1])", "1", "other"],
        ["EVAL", "return redis.call('SET', 'other', '1')", "0"], ["EVAL", "return redis.call('FLUSHALL')", "0"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_nothing_of_others_and_nothing_of_the_server(redis: RedisServer, url: str, command: list[str]) -> None:
    redis.client().set("other", "kept")
    client = redis_py.Redis.from_url(url, socket_timeout=10)
    with pytest.raises((NoPermissionError, ResponseError)) as caught:
        client.execute_command(*command)
    assert "permission" in str(caught.value).lower() or "NOPERM" in str(caught.value), caught.value
    assert redis.client().get("other") == "kept"
