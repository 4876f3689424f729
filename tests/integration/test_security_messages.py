"""What lies in the queue in place of hsqueue's messages runs nothing, and keeps no worker from the next message."""

from __future__ import annotations

import base64
import json
import os
import pickle
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hsqueue.contracts.message import TASK_NAME
from hsqueue.ledger.keys import RUNS
from hsqueue.ledger.ledger import Ledger
from hsqueue.planning.plan import load_run
from hsqueue.queue.app import queue_key
from tests.support.cli import hsqueue, start
from tests.support.engine import Engine, engine
from tests.support.prompts import published, token_prompts
from tests.support.redis import RedisServer, redis_server
from tests.support.waiting import await_true


class Bomb:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.path),)


@dataclass(frozen=True, slots=True)
class Place:
    """A worker at its queue. volume: where runs may lie. env: of commands."""

    redis: RedisServer
    engine: Engine
    volume: Path
    outside: Path
    queue: str
    env: dict[str, str]
    log: Path

    def push(self, message: bytes | str) -> None:
        client = self.redis.client()
        client.lpush(queue_key(self.queue), message)
        client.close()

    def plan(self, root: Path, count: int = 4) -> str:
        """A run of `count` samples in one shard; its id."""
        prompts = token_prompts(root.with_suffix(".jsonl"), [12] * count, seed=hash(root.name) % 1000)
        source = ("--engine", self.engine.url, "--dump-dir", str(self.engine.dump_dir))
        result = hsqueue("plan", prompts, "--out", root, *source, env=self.env)
        assert result.status == 0, result.text
        return load_run(root).run

    def still_works(self, root: Path) -> None:
        """A run that is enqueued now completes."""
        self.plan(root)
        result = hsqueue("enqueue", root, env=self.env)
        assert result.status == 0, result.text
        await_true(
            lambda: published(root) == set(range(4)), f"no worker works any more: {self.log.read_text()[-3000:]}"
        )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    here = tmp_path_factory.mktemp("messages")
    volume, outside, log = here / "volume", here / "outside", here / "worker.log"
    volume.mkdir()
    outside.mkdir()
    with redis_server(here / "redis") as redis, engine(here) as one:
        env = {"HSQ_REDIS_URL": redis.url}
        worker = start(
            "worker", "--engine", one.url, "--dump-dir", one.dump_dir, "--name", "gpu0", log=log,
            env={**env, "HSQ_VOLUMES": str(volume)},
        )  # fmt: skip
        made = Place(redis, one, volume, outside, "", env, log)
        made.plan(volume / "first")
        made = Place(redis, one, volume, outside, load_run(volume / "first").fingerprint.target.queue, env, log)
        try:
            yield made
        finally:
            worker.terminate()
            worker.wait(60)


def envelope(body: bytes, kind: str = "application/json", task: str = TASK_NAME, **headers: object) -> str:
    """A message as Celery's second protocol has it."""
    name = str(uuid.uuid4())
    return json.dumps({
        "body": base64.b64encode(body).decode(), "content-encoding": "utf-8", "content-type": kind,
        "headers": {"lang": "py", "task": task, "id": name, "root_id": name, "parent_id": None, "retries": 0,
                    "eta": None, "expires": None, "group": None, "argsrepr": "()", "kwargsrepr": "{}",
                    "origin": "x", "timelimit": [None, None], **headers},
        "properties": {"correlation_id": name, "reply_to": "-", "delivery_mode": 2, "delivery_tag": name,
                       "delivery_info": {"exchange": "", "routing_key": "x"}, "priority": 0, "body_encoding": "base64"},
    })  # fmt: skip


def body(args: object, kwargs: object, embed: object = None) -> bytes:
    return json.dumps([args, kwargs, embed or {}]).encode()


GOOD = {"run": "r1", "shard": 0, "n": 1}
YAML = b"!!python/object/apply:os.mkdir ['%s']"


def forged(mark: Path) -> list[str]:
    """Messages of which none may run anything or stay. mark: made by those that carry code, should it run."""
    pickled = pickle.dumps([[], GOOD, Bomb(mark)])
    signature = {
        "task": "celery.map", "args": [], "kwargs": {"task": {"task": TASK_NAME}, "it": [[]]}, "options": {},
        "subtask_type": None, "immutable": True,
    }  # fmt: skip
    return [
        envelope(pickled, "application/x-python-serialize"), envelope(pickled, "application/json"),
        envelope(pickled, "pickle"), envelope(pickled, "application/data"), envelope(pickled, "text/plain"),
        envelope(pickled, ""), envelope(YAML % str(mark).encode(), "application/x-yaml"),
        envelope(YAML % str(mark).encode(), "yaml"), envelope(b"\x93\x90\x80\x80", "application/x-msgpack"),
        envelope(base64.b64encode(pickled)), envelope(b"not json"), envelope(b""), envelope(b"3"), envelope(b"[]"),
        envelope(b"[[], {}]"), envelope(b"null"), envelope(b"[" * 5000),
        envelope(body([], GOOD), task="os.system"), envelope(body([str(mark)], {}), task="os.mkdir"),
        envelope(body([], GOOD), task="celery.backend_cleanup"),
        *(envelope(body([], {"run": run, "shard": 0, "n": 1})) for run in ("../../etc", "é\0", "a" * 10_000, "")),
        *(envelope(body([], {"run": "r1", "shard": shard, "n": 1})) for shard in (-1, 1 << 80, "0", None, [0])),
 envelope(body([], {"shard": 0})),
        envelope(body(["positional"], GOOD)), envelope(body([], {**GOOD, "self": 1})), envelope(body([], [])),
        envelope(body([], {**GOOD, "engine": "http://127.0.0.1:1", "dir": "/"})),
        envelope(body([], {"run": "unknown-run", "shard": 0, "n": 1})),
        envelope(body([], GOOD, {"chain": [signature], "callbacks": [signature], "errbacks": [signature]})),
    ]  # fmt: skip


def test_nothing_that_was_forged_runs_and_all_of_it_goes(place: Place, tmp_path: Path) -> None:
    mark = tmp_path / "it-ran"
    pickle.loads(pickle.dumps(Bomb(mark)))
    assert mark.is_dir(), "the bomb itself works"
    mark.rmdir()
    before = set(place.volume.rglob("*"))
    for message in forged(mark):
        place.push(message)
    client = place.redis.client()
    await_true(lambda: client.llen(queue_key(place.queue)) == 0, "forged messages stay in the queue")
    place.still_works(place.volume / "after-forged")
    assert not mark.exists()
    made = {path for path in set(place.volume.rglob("*")) - before if "after-forged" not in str(path)}
    assert made == set()


def test_remote_control_and_events_take_json_alone(place: Place, tmp_path: Path) -> None:
    mark = tmp_path / "it-ran"
    client = place.redis.client()
    for kind in ("application/x-python-serialize", "application/json", "application/data"):
        forged = json.loads(envelope(pickle.dumps({"method": "ping", "arguments": {"x": Bomb(mark)}}), kind))
        for channel in ("hsq:broker:/0.celery.pidbox", "hsq:broker:/0.celeryev/task.sent"):
            client.publish(channel, json.dumps(forged))
    place.still_works(place.volume / "after-control")
    assert not mark.exists()


def test_a_run_outside_the_volumes_is_refused_whatever_leads_there(place: Place) -> None:
    """By its name, by a link within the volume, and by dots."""
    run = place.plan(place.outside / "run")
    link = place.volume / "link"
    link.symlink_to(place.outside / "run")
    client = place.redis.client()
    ledger = Ledger(client, place.redis.url, run)
    result = hsqueue("enqueue", place.outside / "run", env=place.env)
    assert result.status == 0, result.text
    ways = (place.outside / "run", link, place.volume / ".." / "outside" / "run")
    for way in ways:
        client.hset(ledger.keys.info, "dir", str(way))

        def refused(way: Path = way) -> bool:
            # A worker that pauses, as it does for a moment after each refusal, hands messages back.
            if client.llen(queue_key(place.queue)) == 0:
                place.push(envelope(body([], {"run": run, "shard": 0, "n": 4})))
            return f"{way} lies outside" in place.log.read_text()

        await_true(refused, f"{way} was not refused")
    assert not (place.outside / "run" / "samples").exists()
    ledger.drop()
    place.still_works(place.volume / "after-outside")


@pytest.mark.parametrize(
    "directory", ["relative/run", "/a\0b", "", "/" + "x" * 5000, "//", "/proc/self/environ", "/\ud7ff/é"]
)
def test_a_directory_in_redis_that_is_none_is_refused(place: Place, directory: str) -> None:
    client = place.redis.client()
    ledger = Ledger(client, place.redis.url, "forged")
    client.hset(RUNS, "forged", directory)
    fields = {"dir": directory, "samples": 1, "shards": 1, "shard_size": 1, "queue": "q", "epoch": 1}
    client.hset(ledger.keys.info, mapping=fields)  # type: ignore[arg-type]
    place.push(envelope(body([], {"run": "forged", "shard": 0, "n": 1})))
    await_true(lambda: client.llen(queue_key(place.queue)) == 0, "the message stays")
    client.hdel(RUNS, "forged")
    client.delete(ledger.keys.info)
    place.still_works(place.volume / f"after-{abs(hash(directory)) % 10**6}")


def test_a_link_within_a_run_leads_no_sample_out_of_it(place: Place) -> None:
    root, elsewhere = place.volume / "linked", place.outside / "elsewhere"
    place.plan(root)
    elsewhere.mkdir()
    (root / "samples").symlink_to(elsewhere)
    result = hsqueue("enqueue", root, env=place.env)
    assert result.status == 0, result.text
    await_true(lambda: f"{root}/samples is a link" in place.log.read_text(), "the link was not refused")
    assert list(elsewhere.iterdir()) == []
    (root / "samples").unlink()
    await_true(lambda: published(root) == set(range(4)), "it does not go on once the link is gone")
