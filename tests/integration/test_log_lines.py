"""What commands and workers write into their logs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.test_shard import make_floor
from tests.support.cli import hsqueue
from tests.support.prompts import token_prompts
from tests.support.redis import RedisServer
from tests.support.volume import make_volume


def lines_of_a_shard(redis: RedisServer, directory: Path, samples: int, caplog: pytest.LogCaptureFixture) -> int:
    directory.mkdir()
    redis.client().flushall()
    floor = make_floor(redis, directory, [4] * samples)
    caplog.clear()
    with caplog.at_level("INFO"):
        assert floor.work().done == samples
    return len(caplog.records)


def test_samples_that_go_well_write_no_line(
    redis: RedisServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    few = lines_of_a_shard(redis, tmp_path / "few", 2, caplog)
    assert lines_of_a_shard(redis, tmp_path / "many", 40, caplog) == few


@pytest.mark.parametrize("how", ["variable", "file"])
def test_the_command_line_takes_the_form_from_the_settings(tmp_path: Path, redis: RedisServer, how: str) -> None:
    """With --verbose it logs; what it logs is then JSON."""
    volume = make_volume(tmp_path / "run", (5, 9), 1)
    env = {"HSQ_REDIS_URL": redis.url, "HSQ_CONFIG": ""}
    if how == "file":
        (tmp_path / "hsqueue.toml").write_text('log = "json"\n')
        env["HSQ_CONFIG"] = str(tmp_path / "hsqueue.toml")
    else:
        env["HSQ_LOG"] = "json"
        del env["HSQ_CONFIG"]
    found = hsqueue("--verbose", "enqueue", volume.layout.root, env=env)
    assert found.status == 0, found.text
    lines = [line for line in found.err.splitlines() if not line.startswith("hsqueue:")]
    assert lines
    for line in lines:
        assert {"time", "level", "logger", "message"} <= set(json.loads(line)), line


def test_a_workers_log_is_json_from_its_first_line_to_its_last(tmp_path: Path) -> None:
    prompts = token_prompts(tmp_path / "prompts.jsonl", [20] * 12)
    root = tmp_path / "run"
    found = hsqueue("run", prompts, "--out", root, "--shard-size", "6", env={"HSQ_LOG": "json"})
    assert found.status == 0, found.text
    told = [json.loads(line) for line in (root / "logs" / "gpu0.log").read_text().splitlines()]
    assert "worker: Cold shutdown (MainProcess)" in [line["message"] for line in told]
    ended = [line for line in told if line["logger"] == "hsworker.station" and "6/6 done" in line["message"]]
    assert sorted(line["shard"] for line in ended) == [0, 1]
    for line in ended:
        assert line["run"] in line["message"]
        assert line["worker"].startswith("gpu0@")
