"""``hsqueue report`` beside ``hsqueue status``, with a Redis and without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hsqueue.contracts.sample import Ending, GivenUp
from hsqueue.ledger.rebuild import reconcile
from tests.support.cli import hsqueue
from tests.support.ledger import granted
from tests.support.page import read_page
from tests.support.redis import RedisServer
from tests.support.volume import Volume, make_volume

LENGTHS = (5, 9, 12, 3, 7, 7, 2, 8, 4)
SAME = ("total", "done", "skipped", "failed", "pending", "tokens", "bytes", "shards", "shards_ended")


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    """One shard ended, one begun, one not."""
    made = make_volume(tmp_path / "run", LENGTHS, 4)
    made.finish_shard(0, [GivenUp(3, Ending.SKIPPED, 1, "SampleTooLong", "too long")])
    made.publish(4, 6)
    return made


def figures(volume: Volume, url: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    """Of the report and of status."""
    env, root = {"HSQ_REDIS_URL": url}, volume.layout.root
    out = root.parent / "page.html"
    made = hsqueue("report", root, "-o", out, env=env)
    assert made.status == 0, made.text
    told = hsqueue("status", root, "--json", env=env).json()
    return read_page(out.read_text()).figures, {name: told[name] for name in SAME}


def test_figures_are_those_of_status_without_a_redis(volume: Volume) -> None:
    shown, told = figures(volume)
    assert (told["done"], told["pending"]) == (5, 3)
    assert {name: shown[name] for name in SAME} == told


def test_figures_are_those_of_status_with_a_redis(volume: Volume, redis: RedisServer) -> None:
    """Of which the ledger knows more than any manifest: a sample that failed in a shard under way."""
    ledger = reconcile(redis.client(), redis.url, volume.layout, volume.info).ledger
    ledger.commit(granted(ledger, 1), [], [GivenUp(5, Ending.FAILED, 5, "DumpMissing", "no dump")])
    shown, told = figures(volume, redis.url)
    assert (told["failed"], told["pending"]) == (1, 2)
    assert {name: shown[name] for name in SAME} == told


def test_a_page_that_cannot_be_written_is_named(volume: Volume, tmp_path: Path) -> None:
    found = hsqueue("report", volume.layout.root, "-o", tmp_path / "absent" / "page.html")
    assert found.status == 2
    assert "page.html cannot be written" in found.err


def test_an_old_page_is_replaced(volume: Volume, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("old")
    figures(volume)
    assert sorted(path.name for path in tmp_path.glob("*page*")) == ["page.html"]
