"""Each misbehaviour of the embedded engine, seen from outside."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from pathlib import Path

import pytest
import requests
import torch
from safetensors import SafetensorError, safe_open

from hsqueue.contracts.dump import DUMP_FILE
from tests.support.asking import (
    LAYERS,
    TOLERANCE,
    WAIT,
    ask,
    ask_all,
    dump_path,
    off,
    prompt,
    read_dump,
    rid,
)
from tests.support.engine import Engine, engine, start_engine
from tests.support.prompts import Reference
from tests.support.waiting import await_true


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
