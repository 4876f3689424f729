"""Every misbehaviour that servers were seen to have, all at once: nothing wrong is published, nothing is lost.

The two approaches that match-after-response replaced are put to the same engine and fail.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from hsqueue.planning.plan import load_run
from hsqueue.store.layout import RunLayout
from hsqueue.store.survey import survey
from tests.support.abandoned import clear_before_each_request, predict_the_counter
from tests.support.cli import hsqueue
from tests.support.engine import engine
from tests.support.prompts import Reference, half_alike, published, token_prompts, wrong_samples

COUNT = 2000
POISON = 1234
"""Index of the prompt that kills the engine."""

SEEN: dict[str, object] = {
    "seed": 11, "warmup": True, "health_every": 0.5, "reorder": True, "odd_chunks": True, "late": 0.6, "slow": 0.2,
    "stale_dumps": 60, "stale_lengths": [32, 6, 40, 41, 42],
}  # fmt: skip
"""What every server was seen to do, whichever layout its dumps have."""

FAULTS: dict[str, object] = {
    "abort": 0.03, "unavailable": 0.04, "wrong_id": 0.01, "cut": 0.01, "lost": 0.01, "torn": 0.02, "nan": 0.01,
}  # fmt: skip
"""Faults that a worker sees in the response or in the file, whichever layout."""

MIXED_UP: dict[str, object] = {"swap": 0.03, "shift": 0.03, "radix": 0.05, "radix_always": True}
"""States of other prompts under the right name: only the token ids in the dump can tell."""

ENVIRONMENT = {"HSQ_DUMP_TIMEOUT": "8", "HSQ_MAX_IN_FLIGHT": "64"}


def poisoned(path: Path, lengths: list[int]) -> tuple[Path, list[int]]:
    """Prompts of which one kills the engine; and the ids that it begins with."""
    token_prompts(path, lengths)
    lines = path.read_text().splitlines(keepends=True)
    ids = json.loads(lines[POISON])["input_ids"]
    return path, ids[:3]


@pytest.mark.timeout(1000)
def test_two_thousand_prompts_under_every_misbehaviour_at_once(tmp_path: Path) -> None:
    prompts, poison = poisoned(tmp_path / "prompts.jsonl", half_alike(COUNT))
    root = tmp_path / "run"
    trouble = {**SEEN, **FAULTS, **MIXED_UP, "poison": poison}
    result = hsqueue(
        "run", prompts, "--out", root, "--shard-size", "250", "--deep",
        "--engine-options", f"--misbehave {shlex.quote(json.dumps(trouble))}", env=ENVIRONMENT, timeout=900,
    )  # fmt: skip
    assert result.status == 3, result.text
    assert wrong_samples(root, Reference()) == []
    assert published(root) == set(range(COUNT)) - {POISON}
    given_up = {g.index: g.error for s in survey(RunLayout(root), load_run(root)) for g in s.given_up}
    assert given_up == {POISON: "EngineKilled"}, "the poison prompt has an ending and a reason; nothing else has one"


@pytest.mark.timeout(700)
@pytest.mark.parametrize("form", ["pt", "pt-files", "safetensors"])
def test_the_older_layout_is_never_guessed(tmp_path: Path, form: str) -> None:
    count = 120
    prompts = token_prompts(tmp_path / "prompts.jsonl", half_alike(count))
    root = tmp_path / "run"
    options = f"--dump-layout counter --counter-form {form} --misbehave {shlex.quote(json.dumps({**SEEN, **FAULTS}))}"
    result = hsqueue(
        "run", prompts, "--out", root, "--shard-size", "60", "--deep", "--dump-layout", "counter",
        "--engine-options", options, env={**ENVIRONMENT, "HSQ_DUMP_TIMEOUT": "3"}, timeout=600,
    )  # fmt: skip
    assert result.status == 0, result.text
    assert wrong_samples(root, Reference()) == []
    assert published(root) == set(range(count))


@pytest.mark.parametrize("approach", [predict_the_counter, clear_before_each_request])
def test_the_abandoned_approaches_fail_where_matching_survives(tmp_path: Path, approach: object) -> None:
    assert callable(approach)
    prompts = [json.loads(line)["input_ids"] for line in token_prompts(tmp_path / "p", half_alike(200)).open()]
    with engine(tmp_path, "--dump-layout", "counter", misbehave=SEEN) as server:
        taken = approach(server, prompts, concurrency=64)
    reference = Reference()
    missing = [k for k in range(len(prompts)) if k not in taken]
    wrong = []
    for k, (aux, _) in taken.items():
        expected, _ = reference.states(prompts[k], (2, 4, 5))
        if aux.shape != expected.shape or float((aux - expected).abs().max()) > 1e-3:
            wrong.append(k)
    print(f"{approach.__name__}: {len(missing)} missing, {len(wrong)} wrong of {len(prompts)}")
    assert wrong, "it takes states of other prompts"


@pytest.mark.parametrize("approach", [predict_the_counter, clear_before_each_request])
def test_the_abandoned_approaches_work_on_a_quiet_server(tmp_path: Path, approach: object) -> None:
    """Else their failure above would say nothing of the approach."""
    assert callable(approach)
    prompts = [json.loads(line)["input_ids"] for line in token_prompts(tmp_path / "p", [9, 17, 40, 33]).open()]
    with engine(tmp_path, "--dump-layout", "counter") as server:
        taken = approach(server, prompts, concurrency=1)
    reference = Reference()
    assert set(taken) == set(range(len(prompts)))
    for k, (aux, last) in taken.items():
        expected_aux, expected_last = reference.states(prompts[k], (2, 4, 5))
        assert float((aux - expected_aux).abs().max()) <= 1e-3
        assert float((last - expected_last).abs().max()) <= 1e-3
