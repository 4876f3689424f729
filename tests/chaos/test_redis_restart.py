"""A worker with shards in hand outlives its connection to Redis: the same process works on, and its run completes.

Celery takes different ways: where Redis is gone, where it is back at once, and where connections are accepted and then
reset, as a service of Kubernetes does.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.operations.network import proxy
from tests.support.cli import hsqueue, start
from tests.support.engine import engine
from tests.support.prompts import published, token_prompts
from tests.support.redis import free_port, redis_server
from tests.support.waiting import await_true, lives

COUNT = 60
LOSSES = 2


@pytest.mark.timeout(400)
@pytest.mark.parametrize("loss", ["Redis dies for a while", "Redis dies for a moment", "connections are reset"])
def test_a_busy_worker_outlives_its_connection_to_redis(tmp_path: Path, loss: str) -> None:
    prompts = token_prompts(tmp_path / "prompts.jsonl", [20 + k % 40 for k in range(COUNT)])
    root, log = tmp_path / "run", tmp_path / "worker.log"
    with (
        redis_server(tmp_path) as redis,
        proxy("127.0.0.1", free_port(), "127.0.0.1", redis.port) as relay,
        engine(tmp_path, misbehave={"slow": 0.5}) as server,
    ):
        planned = hsqueue("plan", prompts, "--out", root, "--dump-dir", server.dump_dir, "--shard-size", "10")
        assert planned.status == 0, planned.text
        url = redis.url.replace(f":{redis.port}/", f":{relay.port}/")
        worker = start(
            "worker", "--engine", server.url, "--dump-dir", server.dump_dir, "--max-in-flight", "2", log=log,
            env={"HSQ_REDIS_URL": url},
        )  # fmt: skip
        alive = lives(worker, log)
        assert hsqueue("enqueue", root, env={"HSQ_REDIS_URL": redis.url}).status == 0
        for death in range(LOSSES):
            # It is connected again, and in the middle of a shard.
            await_true(
                lambda death=death: log.read_text().count("Connected to redis") > death,
                "no connection",
                meanwhile=alive,
            )
            before = len(published(root))
            await_true(lambda before=before: len(published(root)) > before, "it stands still", meanwhile=alive)

            def noticed(death: int = death) -> bool:
                return log.read_text().count("Connection to broker lost") > death

            if loss == "connections are reset":
                relay.tell("cut")
                relay.tell("forward")
            else:
                redis.kill()
                if loss == "Redis dies for a while":
                    await_true(noticed, "it notices nothing", meanwhile=alive)
                redis.start()
            await_true(noticed, "it notices nothing", meanwhile=alive)
        await_true(lambda: len(published(root)) == COUNT, "it does not end", meanwhile=alive)
        worker.kill()
        worker.wait()
