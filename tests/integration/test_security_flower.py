"""Flower behind its password: nothing is shown or done without it, from another site, or against --read-only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

from tests.support.flower import flower as running
from tests.support.ledger import INFO
from tests.support.redis import RedisServer, free_port

PASSWORD = "of-flower-7f3a"
LOGIN = ("hsqueue", PASSWORD)
SAMPLES = (
    "samples", "samples/run/r1", "samples/assets/common.js", "api/samples", "api/samples/r1", "api/samples/r1/shards",
    "api/samples/r1/shards/0",
)  # fmt: skip
PAGES = (
    "", "workers", "tasks", "broker", "metrics", "api/workers", "api/tasks", "api/queues/length", "static/../x",
    *SAMPLES,
)  # fmt: skip
ACTIONS = (
    "api/task/async-apply/hsqueue.extract", "api/task/send-task/hsqueue.extract", "api/task/revoke/x",
    "api/worker/shutdown/gpu0", "api/worker/pool/restart/gpu0", "api/worker/queue/cancel-consumer/gpu0",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Flower:
    url: str
    log: Path

    def get(self, page: str, **more: object) -> requests.Response:
        return requests.get(f"{self.url}/{page}", timeout=30, allow_redirects=False, **more)  # type: ignore[arg-type]

    def post(self, page: str, **more: object) -> requests.Response:
        return requests.post(f"{self.url}/{page}", timeout=30, json={"kwargs": {}}, **more)  # type: ignore[arg-type]


def serve(place: Path, redis: RedisServer, *options: str) -> Iterator[Flower]:
    port, log = free_port(), place / "flower.log"
    # A variable that opens Flower's API, left over in somebody's shell, must open nothing.
    env = {
        "HSQ_REDIS_URL": redis.url, "HSQ_FLOWER_PASSWORD": PASSWORD, "FLOWER_UNAUTHENTICATED_API": "true",
        "FLOWER_DEBUG": "true", "FLOWER_LOGGING": "debug",
    }  # fmt: skip
    with running(port, log, env, *options):
        yield Flower(f"http://127.0.0.1:{port}", log)


@pytest.fixture(scope="module")
def flower(_redis: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flower]:
    yield from serve(tmp_path_factory.mktemp("flower"), _redis)


@pytest.fixture(scope="module")
def reading(_redis: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flower]:
    yield from serve(tmp_path_factory.mktemp("reading"), _redis, "--read-only")


@pytest.mark.parametrize("login", [None, ("hsqueue", ""), ("hsqueue", "wrong"), ("admin", PASSWORD), ("", "")], ids=str)
@pytest.mark.parametrize("page", PAGES)
def test_nothing_is_shown_without_the_password(flower: Flower, page: str, login: tuple[str, str] | None) -> None:
    answer = flower.get(page, auth=login)
    assert answer.status_code in (401, 404)
    assert page.startswith("static") or answer.status_code == 401


@pytest.mark.parametrize("header", ["Basic", "Basic !!!", "Bearer x", "Basic aHNxdWV1ZQ==", "Basic " + "A" * 5000])
def test_a_login_that_is_none_is_none(flower: Flower, header: str) -> None:
    assert flower.get("workers", headers={"Authorization": header}).status_code == 401


@pytest.mark.parametrize("page", ["workers", "metrics", "api/workers", *SAMPLES])
@pytest.mark.usefixtures("ledger")
def test_the_password_opens(flower: Flower, page: str) -> None:
    assert flower.get(page, auth=LOGIN).status_code == 200


@pytest.mark.parametrize("page", SAMPLES)
@pytest.mark.usefixtures("ledger")
def test_nothing_of_a_run_is_said_without_the_password(flower: Flower, page: str) -> None:
    for login in (None, ("hsqueue", "wrong")):
        answer = flower.get(page, auth=login)
        assert answer.status_code == 401
        assert INFO.dir not in answer.text
        assert len(answer.content) < 100


@pytest.mark.parametrize(
    "page",
    [
        "samples/run/..", "samples/run/R1", "samples/run/r1/x", "samples/run/%3Cscript%3E", "samples/assets/../x.py",
        "samples/assets/..%2fhandlers.py", "samples/assets/nothing.js", "api/samples/..", "api/samples/nobody",
        "api/samples/r1/shards/-1", "api/samples/r1/shards/5", "api/samples/r1/shards/999999999999",
        "api/samples/r1/shards/1e3", "api/samples/nobody/shards", "api/samples/nobody/shards/0",
    ],
)  # fmt: skip
@pytest.mark.usefixtures("ledger")
def test_what_is_not_there_is_not_there(flower: Flower, page: str) -> None:
    answer = flower.get(page, auth=LOGIN)
    assert answer.status_code == 404
    assert "Traceback" not in answer.text


@pytest.mark.parametrize("page", SAMPLES)
def test_these_pages_only_show(flower: Flower, page: str) -> None:
    assert flower.post(page, auth=LOGIN).status_code == 405
    assert flower.post(page, auth=LOGIN, headers={"Origin": "http://evil.example"}).status_code in (403, 405)


@pytest.mark.parametrize("page", ["samples", "workers", "tasks", "api/samples", "nothing"])
def test_every_answer_forbids_foreign_scripts_and_frames(flower: Flower, page: str) -> None:
    policy = flower.get(page, auth=LOGIN).headers["Content-Security-Policy"].split("; ")
    assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} <= set(policy)


def test_redis_that_does_not_answer_is_said_without_its_password(flower: Flower, redis: RedisServer) -> None:
    redis.freeze()
    try:
        answer = flower.get("api/samples/r1", auth=LOGIN)
    finally:
        redis.thaw()
    assert answer.status_code == 503
    assert "does not answer" in answer.json()["error"]
    assert redis.password not in answer.text


@pytest.mark.parametrize("action", ACTIONS)
def test_nothing_is_done_without_the_password(flower: Flower, action: str) -> None:
    assert flower.post(action).status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site", "Content-Type": "text/plain"},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("action", ACTIONS)
def test_a_page_of_another_site_does_nothing_with_the_users_login(
    flower: Flower, action: str, headers: dict[str, str]
) -> None:
    assert flower.post(action, auth=LOGIN, headers=headers).status_code == 403


@pytest.mark.parametrize("action", ACTIONS)
def test_read_only_does_nothing_even_with_the_password(reading: Flower, action: str) -> None:
    assert reading.post(action, auth=LOGIN).status_code in (401, 403, 405)


def test_read_only_shows(reading: Flower) -> None:
    assert reading.get("workers", auth=LOGIN).status_code == 200


@pytest.mark.parametrize("page", ["api/workers", "api/samples", "samples"])
def test_no_site_may_read_what_flower_answers(flower: Flower, page: str) -> None:
    answer = flower.get(page, auth=LOGIN, headers={"Origin": "http://evil.example"})
    assert "Access-Control-Allow-Origin" not in answer.headers


def test_neither_password_is_in_the_log(flower: Flower, redis: RedisServer) -> None:
    flower.get("workers", auth=("hsqueue", "wrong"))
    text = flower.log.read_text()
    assert "Visit me at" in text
    assert PASSWORD not in text
    assert redis.password not in text
