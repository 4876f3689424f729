"""Where capture cannot be exact it is off: the log, the card and /server_info say so, and the server serves on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests

from hsqueue.contracts.errors import DumpMissing, EngineUnfit
from hsworker.engine import EngineClient
from hsworker.pinning import check_engine
from tests.sglang import models
from tests.sglang.mutant import VARIABLE
from tests.sglang.probe import Prober, new_rid, prompt
from tests.sglang.server import OF_SEVERAL_RANKS, Server, sglang_server
from tests.support.cli import hsqueue
from tests.support.redis import redis_server

Model = Callable[[Callable[[], Any]], Path]


def require_refused(server: Server, problem: str, stages: int = 1) -> None:
    """One line in the log for each pipeline stage, the problem in the card and in /server_info, the worker stops, the
    server serves.
    """
    assert problem in server.card().problem
    assert server.info()["hsq_problem"] == server.card().problem
    assert [problem in line for line in server.complaints()] == [True] * stages
    with pytest.raises(EngineUnfit, match="does not capture"):
        check_engine(EngineClient(server.url), server.card())
    require_served(server)
    assert server.dumps() == []


def require_told(server: Server, tmp_path: Path, problem: str) -> None:
    """The command line names the cause in its one line, and plans nothing."""
    place = ("--engine", server.url, "--dump-dir", server.dump_dir)
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"id": "a", "input_ids": [5, 6], "loss_mask": [1, 1]}) + "\n")
    with redis_server(tmp_path) as redis:
        for command in (("worker", *place), ("doctor", *place), ("run", prompts, "--out", tmp_path / "run", *place)):
            done = hsqueue(*command, env={"HSQ_REDIS_URL": redis.url})
            assert done.status == 1, done.text
            assert problem in done.text
    assert not (tmp_path / "run").exists()


def require_served(server: Server) -> None:
    body = {"input_ids": prompt(0, 20), "rid": str(new_rid()), "sampling_params": {"max_new_tokens": 3}}
    answer = requests.post(f"{server.url}/generate", json=body, timeout=60)
    assert answer.status_code == 200
    assert len(answer.json()["output_ids"]) == 3


def test_a_model_that_cannot_capture(model: Model, tmp_path: Path) -> None:
    with sglang_server(model(models.gpt2), tmp_path) as server:
        require_refused(server, "GPT2LMHeadModel")


def test_a_model_that_holds_other_layers_than_asked(model: Model, tmp_path: Path) -> None:
    damage = tmp_path / "chosen"
    damage.write_text("model-disagrees")
    with sglang_server(model(models.llama), tmp_path, settings={VARIABLE: str(damage)}, mutant=True) as server:
        require_refused(server, "expected [2, 4, 5] held, found [3, 5, 6]")


def test_pipeline_parallel_ranks(model: Model, tmp_path: Path) -> None:
    with sglang_server(model(models.llama), tmp_path, "--pp-size", "2", settings=OF_SEVERAL_RANKS) as server:
        require_refused(server, "pipeline parallelism is on", stages=2)


def test_layers_that_the_model_does_not_have(model: Model, tmp_path: Path) -> None:
    with sglang_server(model(models.llama), tmp_path, settings={"HSQ_LAYERS": "2,9"}) as server:
        require_refused(server, "expected 0 to 8, found 2,9")


def test_settings_that_are_not_understood(model: Model, tmp_path: Path) -> None:
    with sglang_server(model(models.llama), tmp_path, settings={"HSQ_NORM": "none"}) as server:
        require_refused(server, "HSQ_NORM is not understood")


def test_a_version_whose_hook_points_moved(model: Model, tmp_path: Path) -> None:
    damage = tmp_path / "chosen"
    damage.write_text("moved")
    with sglang_server(model(models.llama), tmp_path, settings={VARIABLE: str(damage)}, mutant=True) as server:
        require_refused(server, "process_batch_result takes (self, work, outcome)")


def test_a_dump_directory_that_cannot_be_made(model: Model, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with sglang_server(model(models.llama), tmp_path, dump_dir=tmp_path / "file" / "dumps") as server:
        assert ["dumps cannot be written" in line for line in server.complaints()] == [True]
        assert "dumps cannot be written" in str(server.info()["hsq_problem"])
        require_served(server)
        require_told(server, tmp_path, "dumps cannot be written")


def test_a_full_dump_directory_costs_dumps_and_not_the_server(model: Model, tmp_path: Path) -> None:
    one = 100 * (3 + 1) * 128 * 4 + 4096
    with sglang_server(model(models.llama), tmp_path, settings={"HSQ_DUMP_LIMIT": str(one)}) as server:
        prober = Prober(server)
        assert prober.compare(prompt(0, 90)).within_bars()
        with pytest.raises(DumpMissing, match="the engine's complaint: one dump alone is larger"):
            prober.fetch(prompt(1, 200))
        assert ["one dump alone is larger" in line for line in server.complaints()] == [True]
        assert server.dumps() == []
        assert prober.compare(prompt(0, 90)).within_bars()


def test_without_a_dump_directory_nothing_is_hooked(model: Model, tmp_path: Path) -> None:
    with sglang_server(model(models.llama), tmp_path, settings={"HSQ_DUMP_DIR": ""}) as server:
        assert "hsq_instance" not in server.info()
        assert "Applied 1 hook" not in server.log.read_text()
        require_served(server)
