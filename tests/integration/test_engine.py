"""The embedded engine as a process: what it serves, what it dumps, how it begins and ends."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests
import torch

from hsqueue.contracts.card import CARD_NAME, EngineCard
from tests.support.asking import (
    LAYERS,
    TOLERANCE,
    WAIT,
    ask,
    ask_all,
    dump_path,
    failed,
    off,
    prompt,
    read_dump,
    rid,
)
from tests.support.engine import Engine, engine, environment
from tests.support.prompts import Reference
from tests.support.waiting import await_true


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with engine(tmp_path_factory.mktemp("good"), "--chunk", "256", "--prefill-tokens", "512") as found:
        yield found


# --- a good engine ------------------------------------------------------------------------------------------


def test_a_lone_prompt_is_exactly_what_transformers_computes(good: Engine, reference: Reference) -> None:
    ids = prompt("lone", 200)
    answer = ask(good, ids, rid(1)).json()
    assert (answer["text"], answer["output_ids"]) == ("", [])
    meta = answer["meta_info"]
    assert (meta["id"], meta["prompt_tokens"], meta["cached_tokens"]) == (rid(1), 200, 0)
    assert meta["finish_reason"]["type"] == "length"
    dump, tensors = read_dump(good, rid(1))
    assert off(reference, ids, tensors) == 0.0
    assert (dump.chunks, dump.prefix_len, dump.nonfinite, dump.layers) == ((200,), 0, (), LAYERS)


def test_a_long_prompt_runs_in_chunks(good: Engine, reference: Reference) -> None:
    ids = prompt("long", 1000)
    assert ask(good, ids, rid(2)).ok
    dump, tensors = read_dump(good, rid(2))
    assert dump.chunks == (256, 256, 256, 232)
    assert off(reference, ids, tensors) <= TOLERANCE


def test_prompts_that_meet_in_a_batch_keep_their_own_states(good: Engine, reference: Reference) -> None:
    lengths = [1, 2, 300, 40, 40, 40, 511, 7] * 3
    prompts = {rid(100 + n): prompt(n, tokens) for n, tokens in enumerate(lengths)}
    before = requests.get(f"{good.url}/hsq/stats", timeout=10).json()["prefill_passes"]
    answers = ask_all(good, prompts)
    passes = requests.get(f"{good.url}/hsq/stats", timeout=10).json()["prefill_passes"] - before
    assert passes < len(prompts), "they met in no batch"
    for name, ids in prompts.items():
        assert answers[name].json()["meta_info"]["id"] == name
        assert off(reference, ids, read_dump(good, name)[1]) <= TOLERANCE


def test_decoding_is_not_part_of_a_dump(good: Engine, reference: Reference) -> None:
    ids = prompt("decode", 30)
    answer = ask(good, ids, rid(3), new=4).json()
    assert answer["meta_info"]["completion_tokens"] == len(answer["output_ids"]) > 0
    assert off(reference, ids, read_dump(good, rid(3))[1]) == 0.0
    with torch.inference_mode():
        logits = reference.model(reference.torch.tensor([ids])).logits
    assert answer["output_ids"][0] == int(logits[0, -1].argmax())


def test_one_body_may_hold_several_prompts(good: Engine) -> None:
    answers = ask(good, [[5, 6], [7]], [rid(4), rid(5)]).json()
    assert [one["meta_info"]["id"] for one in answers] == [rid(4), rid(5)]
    assert read_dump(good, rid(5))[1]["input_ids"].tolist() == [7]


def test_text_is_encoded_with_the_models_tokenizer(good: Engine) -> None:
    body = {"text": "Natalia sold 48 clips", "sampling_params": {"max_new_tokens": 3}}
    answer = requests.post(f"{good.url}/generate", json=body, timeout=60).json()
    assert answer["meta_info"]["prompt_tokens"] > 3
    assert answer["text"]


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ({"input_ids": [[1], [2]], "rid": ["twice", "twice"]}, "Duplicate request ID"),
        ({"input_ids": [1] * 4091}, "exceeds the maximum"),
        ({"input_ids": [1] * 4097}, "longer than the model's context length"),
        ({"input_ids": []}, "not empty"),
        ({}, "Either text or input_ids"),
    ],
)
def test_what_cannot_be_served_is_refused_with_400(good: Engine, body: dict[str, Any], complaint: str) -> None:
    answer = requests.post(f"{good.url}/generate", json={"sampling_params": {"max_new_tokens": 0}, **body}, timeout=10)
    assert answer.status_code == 400
    assert complaint in answer.json()["error"]["message"]


def test_a_body_that_is_not_json_is_refused_with_400(good: Engine) -> None:
    assert requests.post(f"{good.url}/generate", data=b"{", timeout=10).status_code == 400


def test_only_hsqueues_own_requests_are_dumped(good: Engine) -> None:
    assert ask(good, [1, 2, 3], "somebody-else").ok
    for page in ("/health", "/health_generate"):
        assert requests.get(good.url + page, timeout=10).status_code == 200
    assert ask(good, [1, 2, 3], rid(6)).ok
    read_dump(good, rid(6))
    assert all(path.name.startswith(("req_hsq.", CARD_NAME)) for path in good.dump_dir.iterdir())
    asked = [name for name, _ in good.asked()]
    assert "somebody-else" in asked
    assert sum(name.startswith("HEALTH_CHECK") for name in asked) == 2


def test_the_card_and_the_pages_agree(good: Engine) -> None:
    card = EngineCard.from_json((good.dump_dir / CARD_NAME).read_bytes())
    for page in ("/server_info", "/get_server_info"):
        info = requests.get(good.url + page, timeout=10).json()
        assert (info["hsq_instance"], info["port"], info["dtype"]) == (card.instance, good.port, "float32")
        assert info["max_req_input_len"] == card.context_length == 4090
    for page in ("/model_info", "/get_model_info"):
        assert requests.get(good.url + page, timeout=10).json()["model_path"] == card.model
    assert (card.layers, card.norm, card.hidden_size, card.pid) == (LAYERS, "post", 64, good.process.pid)


def test_the_same_rid_twice_in_flight_is_refused(tmp_path: Path) -> None:
    with engine(tmp_path, misbehave={"slow": 1.0}) as slow, ThreadPoolExecutor(8) as pool:
        codes = [one.status_code for one in pool.map(lambda _: ask(slow, prompt("d", 3000), rid(1)), range(8))]
    assert set(codes) <= {200, 400}
    assert 400 in codes
    assert 200 in codes


def test_an_aborted_request_ends_as_such_without_a_dump(tmp_path: Path) -> None:
    with engine(tmp_path, "--chunk", "1") as where, ThreadPoolExecutor(1) as pool:
        pending = pool.submit(ask, where, prompt("a", 4000), rid(1))
        await_true(lambda: any(name == rid(1) for name, _ in where.asked()), "the request did not arrive")
        assert requests.post(f"{where.url}/abort_request", json={"rid": rid(1)}, timeout=10).status_code == 200
        assert pending.result(WAIT).json()["meta_info"]["finish_reason"]["type"] == "abort"
        assert ask(where, [1], rid(2)).ok
        read_dump(where, rid(2))
        assert not dump_path(where, rid(1)).exists()


def test_other_layers_norms_and_dtypes(tmp_path: Path) -> None:
    with engine(tmp_path, "--layers", "all", "--norm", "both", "--dtype", "bfloat16") as where:
        assert ask(where, [1, 2, 3], rid(1)).ok
        meta, tensors = read_dump(where, rid(1))
    assert meta.layers == tuple(range(9))
    assert {name: (tuple(t.shape), t.dtype) for name, t in tensors.items()} == {
        "input_ids": ((3,), torch.int64),
        "aux_hidden_states": ((3, 9 * 64), torch.bfloat16),
        "last_hidden_state": ((3, 64), torch.bfloat16),
        "last_hidden_state_prenorm": ((3, 64), torch.bfloat16),
    }
    assert torch.equal(tensors["aux_hidden_states"][:, -64:], tensors["last_hidden_state_prenorm"])


# --- beginning and end ----------------------------------------------------------------------------------------


def test_a_signal_ends_it_with_status_0_and_the_next_one_has_another_card(tmp_path: Path) -> None:
    cards = []
    for number in (signal.SIGTERM, signal.SIGINT):
        with engine(tmp_path) as where:
            cards.append(EngineCard.from_json((where.dump_dir / CARD_NAME).read_bytes()))
            assert ask(where, [1, 2], rid(number)).ok
            where.process.send_signal(number)
            assert where.process.wait(WAIT) == 0
            assert dump_path(where, rid(number)).exists()
    assert cards[0].instance != cards[1].instance
    assert cards[0].target == cards[1].target


def test_it_dies_with_its_parent(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    code = (
        "import signal, subprocess, sys; "
        "subprocess.Popen([sys.executable, '-m', 'hsengine', '--dump-dir', sys.argv[1], '--ready-file', sys.argv[2], "
        "'--die-with-parent']); signal.pause()"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "d"), str(ready)], env=environment())
    try:
        await_true(ready.exists, "the engine did not start")
        child = psutil.Process(json.loads(ready.read_text())["pid"])
    finally:
        parent.kill()
        parent.wait()
    child.wait(WAIT)


@pytest.mark.parametrize(
    ("options", "status", "complaint"),
    [
        (["--misbehave", '{"evil": 1}'], 2, "unknown trouble"),
        (["--dump-dir", "/dev/null/x"], 1, "cannot be written"),
    ],
)
def test_what_cannot_start_says_why_in_one_line(options: list[str], status: int, complaint: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hsengine", *options], capture_output=True, text=True, timeout=60, env=environment()
    )
    assert done.returncode == status
    (line,) = done.stderr.strip().splitlines()
    assert complaint in line


def test_a_port_in_use_is_a_usage_error(good: Engine, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hsengine", "--port", str(good.port), "--dump-dir", str(tmp_path)],
        capture_output=True, text=True, timeout=60, env=environment(),
    )  # fmt: skip
    assert done.returncode == 2
    assert f"cannot listen on 127.0.0.1:{good.port}" in done.stderr


def test_it_serves_on_without_a_dump_directory(tmp_path: Path) -> None:
    with engine(tmp_path) as where:
        shutil.rmtree(where.dump_dir)
        assert ask(where, [1, 2], rid(1)).ok
        await_true(lambda: failed(where) == 1, "the lost dump was not counted")
        where.dump_dir.mkdir()
        assert ask(where, [1, 2], rid(2)).ok
        read_dump(where, rid(2))
    assert (tmp_path / "engine.log").read_text().count("no dump of") == 1
