"""The embedded engine as a process: what it serves, what it dumps, and each of its misbehaviours seen from outside."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests
import torch
from safetensors import SafetensorError, safe_open

from hsqueue.contracts.card import CARD_NAME, EngineCard
from hsqueue.contracts.dump import DUMP_FILE, DumpMeta
from hsqueue.contracts.rid import RequestId
from tests.support.engine import Engine, engine, environment, start_engine
from tests.support.prompts import Reference

TOLERANCE = 1e-3
LAYERS = (2, 4, 5)
WAIT = 20.0


@pytest.fixture(scope="module")
def reference() -> Iterator[Reference]:
    """With one thread, as the engine has: matrix products of several threads may sum in another order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Reference()
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with engine(tmp_path_factory.mktemp("good"), "--chunk", "256", "--prefill-tokens", "512") as found:
        yield found


def prompt(seed: object, tokens: int) -> list[int]:
    chance = random.Random(f"{seed}")
    return [chance.randrange(4096) for _ in range(tokens)]


def rid(index: int, attempt: int = 0) -> str:
    return str(RequestId("it", index, 1 << 32, attempt))


def ask(where: Engine, ids: Any, rid: Any = None, new: int = 0, **more: Any) -> requests.Response:
    body = {"input_ids": ids, "rid": rid, "sampling_params": {"max_new_tokens": new}, **more}
    return requests.post(f"{where.url}/generate", json=body, timeout=60)


def ask_all(where: Engine, prompts: dict[str, list[int]], **more: Any) -> dict[str, requests.Response]:
    """All at once, so that they meet in the engine's batches."""
    with ThreadPoolExecutor(len(prompts)) as pool:
        answers = pool.map(lambda item: ask(where, item[1], item[0], **more), prompts.items())
        return dict(zip(prompts, answers, strict=True))


def await_true(condition: Callable[[], bool], why: str) -> None:
    """Polls a state that no event announces: what another process does to a directory, or its end."""
    event = threading.Event()
    for _ in range(int(WAIT / 0.02)):
        if condition():
            return
        event.wait(0.02)
    raise AssertionError(why)


def dump_path(where: Engine, rid: str) -> Path:
    return where.dump_dir / f"req_{rid}" / DUMP_FILE


def read_dump(where: Engine, rid: str) -> tuple[DumpMeta, dict[str, torch.Tensor]]:
    """A dump is complete once it can be seen."""
    path = dump_path(where, rid)
    await_true(path.exists, f"no dump of {rid}")
    with safe_open(path, "pt") as file:
        return DumpMeta.from_metadata(file.metadata()), {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118


def off(reference: Reference, ids: Sequence[int], tensors: dict[str, torch.Tensor], first: int = 0) -> float:
    """Largest difference from a lone forward pass. first: the prompt's position of the dump's first row."""
    assert tensors["input_ids"].tolist() == list(ids[first:])
    aux, last = reference.states(ids, LAYERS)
    return max(
        float((tensors["aux_hidden_states"] - aux[first:]).abs().max()),
        float((tensors["last_hidden_state"] - last[first:]).abs().max()),
    )


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
        "import subprocess, sys, time; "
        "subprocess.Popen([sys.executable, '-m', 'hsengine', '--dump-dir', sys.argv[1], '--ready-file', sys.argv[2], "
        "'--die-with-parent']); time.sleep(600)"
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


def failed(where: Engine) -> int:
    return int(requests.get(f"{where.url}/hsq/stats", timeout=10).json()["dumps_failed"])


def test_the_limit_of_unread_bytes_costs_dumps_and_not_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HSQ_DUMP_LIMIT", "20000")
    with engine(tmp_path) as where:
        for n in range(6):
            assert ask(where, [1] * 5, rid(n)).ok
        await_true(lambda: failed(where) == 3, "dumps beyond the limit were not counted")
        assert len(list(where.dump_dir.glob("req_*"))) == 3
        assert not list(where.dump_dir.glob(".tmp-*"))
    assert "HSQ_DUMP_LIMIT" in (tmp_path / "engine.log").read_text()


# --- misbehaviours ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trouble", "ids"),
    [(None, [1, 4096]), ({"poison": [7, 7]}, [7, 7, 1]), ({"die_after": 1}, [1, 2])],
)
def test_it_dies_of_some_prompts(tmp_path: Path, trouble: dict[str, object] | None, ids: list[int]) -> None:
    with engine(tmp_path, misbehave=trouble) as where:
        with pytest.raises(requests.ConnectionError):
            ask(where, ids, rid(1))
        assert where.process.wait(WAIT) == 70
        assert not dump_path(where, rid(1)).exists()


def test_troubled_scheduling_still_dumps_what_each_prompt_is(tmp_path: Path, reference: Reference) -> None:
    trouble: dict[str, object] = {
        "seed": 2, "reorder": True, "odd_chunks": True, "late": 0.3, "slow": 0.1, "radix": 0.4, "abort": 0.2,
        "unavailable": 0.2, "wrong_id": 0.1, "cut": 0.1, "warmup": True, "health_every": 0.05,
    }  # fmt: skip
    prompts = {rid(n): prompt(n, 3 + 5 * n) for n in range(40)}
    with engine(tmp_path, "--prefill-tokens", "64", misbehave=trouble) as where:
        answers = ask_all(where, prompts)
        seen: dict[str, set[str]] = {kind: set() for kind in ("503", "abort", "cached", "wrong id", "cut", "fine")}
        for name, ids in prompts.items():
            kind, first = judge(name, ids, answers[name])
            seen[kind].add(name)
            if kind in ("fine", "cached", "wrong id"):
                meta, tensors = read_dump(where, name)
                assert meta.prefix_len == first
                assert off(reference, ids, tensors, first) <= TOLERANCE
            elif kind == "cut":
                assert read_dump(where, name)[1]["input_ids"].tolist()[-1:] == ids[-2:-1]
            else:
                assert not dump_path(where, name).exists()
        own = [tokens for name, tokens in where.asked() if not name.startswith("hsq.")]
    assert all(seen.values()), f"not every trouble was seen: {seen}"
    assert own[0] == 6
    assert own.count(1) >= 2


def judge(name: str, ids: list[int], answer: requests.Response) -> tuple[str, int]:
    """What happened to a request, and how many of its tokens count as cached."""
    if answer.status_code == 503:
        return "503", 0
    meta = answer.json()["meta_info"]
    if meta["finish_reason"]["type"] == "abort":
        return "abort", 0
    if meta["prompt_tokens"] != len(ids):
        return "cut", 0
    if meta["id"] != name:
        return "wrong id", meta["cached_tokens"]
    return ("cached" if meta["cached_tokens"] else "fine"), meta["cached_tokens"]


def test_an_extra_key_avoids_the_prefix_cache(tmp_path: Path) -> None:
    with engine(tmp_path, misbehave={"radix": 1.0}) as where:
        assert ask(where, [1, 2, 3], rid(1)).json()["meta_info"]["cached_tokens"] > 0
        assert ask(where, [1, 2, 3], rid(2), extra_key="k").json()["meta_info"]["cached_tokens"] == 0


def test_spoilt_dumps_of_every_kind(tmp_path: Path, reference: Reference) -> None:
    trouble: dict[str, object] = {"seed": 1, "lost": 0.1, "swap": 0.2, "shift": 0.2, "nan": 0.2, "torn": 0.2}
    prompts = {rid(n): prompt(n, 20 + n % 3) for n in range(60)}
    with engine(tmp_path, misbehave=trouble) as where:
        for name, ids in prompts.items():
            assert ask(where, ids, name).ok
        await_true(lambda: written(where) == 60, "not all dumps were dealt with")
        seen = {spoilt(where, reference, name, ids) for name, ids in prompts.items()}
    assert seen == {"lost", "torn", "other prompt", "shifted", "not finite", "fine"}


def written(where: Engine) -> int:
    return int(requests.get(f"{where.url}/hsq/stats", timeout=10).json()["dumps_written"])


def spoilt(where: Engine, reference: Reference, name: str, ids: list[int]) -> str:
    if not dump_path(where, name).exists():
        return "lost"
    try:
        meta, tensors = read_dump(where, name)
    except SafetensorError:
        return "torn"
    found = tensors["input_ids"].tolist()
    if found == ids[-1:] + ids[:-1]:
        return "shifted"
    if found != ids:
        return "other prompt"
    if meta.nonfinite:
        assert torch.isnan(tensors["aux_hidden_states"]).any()
        return "not finite"
    assert off(reference, ids, tensors) <= TOLERANCE
    return "fine"


def test_the_older_layout_counts_everybodys_requests(tmp_path: Path, reference: Reference) -> None:
    trouble: dict[str, object] = {"stale_dumps": 3, "stale_lengths": [5], "warmup": True}
    with engine(tmp_path, "--dump-layout", "counter", misbehave=trouble) as where:
        assert requests.get(f"{where.url}/health", timeout=10).ok
        ids = prompt("old", 5)
        assert ask(where, ids, rid(1)).ok
        metas = {f"req_{n}": where.dump_dir / f"req_{n}" / "meta.json" for n in range(6)}
        await_true(metas["req_5"].exists, "no dump of the request")
        tokens = {name: json.loads(path.read_text())["num_tokens"] for name, path in metas.items()}
        assert tokens == {"req_0": 5, "req_1": 5, "req_2": 5, "req_3": 6, "req_4": 1, "req_5": 5}
        aux, last = reference.states(ids, LAYERS)
        found = torch.load(where.dump_dir / "req_5" / "hidden_states.pt")
        assert torch.equal(found["aux_hidden_states"], aux)
        assert torch.equal(found["last_hidden_state"], last)


def test_a_crash_leaves_no_half_dump_under_a_final_name(tmp_path: Path) -> None:
    where = start_engine(tmp_path)
    stop = threading.Event()

    def load() -> None:
        for n in range(10_000):
            if stop.is_set():
                return
            with contextlib.suppress(requests.ConnectionError):
                ask(where, prompt(n, 400), rid(n, os.getpid() % 1000))

    thread = threading.Thread(target=load, daemon=True)
    thread.start()
    try:
        await_true(lambda: len(list(where.dump_dir.glob("req_*"))) > 20, "no dumps under load")
    finally:
        where.kill()
        stop.set()
        thread.join(WAIT)
    for path in where.dump_dir.glob("req_*"):
        with safe_open(path / DUMP_FILE, "pt") as file:
            assert file.get_tensor("input_ids").shape == (400,)
