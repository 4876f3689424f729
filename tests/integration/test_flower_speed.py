"""The Samples tab with fifty runs, one of them of 100,000 shards: quick answers, small pages."""

from __future__ import annotations

import gzip
import re
import statistics
import time
from collections.abc import Iterator

import pytest
import requests

from hsqueue.monitoring.flower.source import SHARED_SECONDS
from tests.support.flower import flower as running
from tests.support.redis import RedisServer, free_port
from tests.support.seeded import seed_run, seed_worker

RUNS, LARGE = 50, 100_000
MOST_SECONDS = 0.3
MOST_BYTES = 2_000_000
TIMES = 7
PASSWORD = "of-flower"


@pytest.fixture(scope="module")
def url(_redis: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    for k in range(RUNS - 1):
        seed_run(_redis, f"run{k}", 100)
    seed_run(_redis, "large", LARGE)
    for k in range(16):
        seed_worker(_redis, f"gpu{k}@seeded")
    port = free_port()
    env = {"HSQ_REDIS_URL": _redis.url, "HSQ_FLOWER_PASSWORD": PASSWORD}
    with running(port, tmp_path_factory.mktemp("flower") / "flower.log", env):
        yield f"http://127.0.0.1:{port}"


def get(url: str) -> requests.Response:
    answer = requests.get(url, auth=("hsqueue", PASSWORD), timeout=60)
    assert answer.status_code == 200, answer.text
    return answer


@pytest.mark.parametrize(
    "page", ["samples", "api/samples", "samples/run/large", "api/samples/large", "api/samples/large/shards"]
)
def test_answers_come_at_once(url: str, page: str) -> None:
    taken = []
    for _ in range(TIMES):
        # The answer before must be none of these.
        time.sleep(SHARED_SECONDS)
        began = time.perf_counter()
        get(f"{url}/{page}")
        taken.append(time.perf_counter() - began)
    assert statistics.median(taken) < MOST_SECONDS, taken


def test_the_overview_has_every_run(url: str) -> None:
    found = get(f"{url}/api/samples").json()
    assert len(found["runs"]) == RUNS
    assert len(found["workers"]) == 16


@pytest.mark.parametrize(
    ("page", "data"),
    [("samples", ["api/samples"]), ("samples/run/large", ["api/samples/large", "api/samples/large/shards"])],
)
def test_pages_are_small(url: str, page: str, data: list[str]) -> None:
    """With everything that a page asks for, before compression."""
    text = get(f"{url}/{page}").text
    parts = set(re.findall(r'(?:src|href)="(/(?:static|samples/assets)/[^"]+)"', text))
    modules = {f"/samples/assets/{name}.js" for name in ("common", "grid")}
    sizes = [len(get(url + part).content) for part in sorted(parts | modules)]
    sizes += [len(get(f"{url}/{part}").content) for part in data]
    assert len(sizes) >= 8
    assert len(text) + sum(sizes) < MOST_BYTES


def test_answers_are_compressed(url: str) -> None:
    answer = requests.get(
        f"{url}/api/samples/large/shards", auth=("hsqueue", PASSWORD), timeout=60, stream=True,
        headers={"Accept-Encoding": "gzip"},
    )  # fmt: skip
    packed = answer.raw.read(decode_content=False)
    assert len(gzip.decompress(packed)) > LARGE
    assert len(packed) < LARGE / 10
