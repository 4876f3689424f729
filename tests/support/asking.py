"""Asking an engine as its clients do, and holding its dumps against transformers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import requests
import torch
from safetensors import safe_open

from hsqueue.contracts.dump import DUMP_FILE, DumpMeta
from hsqueue.contracts.rid import RequestId
from tests.support.engine import Engine
from tests.support.prompts import Reference
from tests.support.waiting import await_true

TOLERANCE = 1e-3
LAYERS = (2, 4, 5)
WAIT = 20.0


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


def failed(where: Engine) -> int:
    """Dumps that could not be written."""
    return int(requests.get(f"{where.url}/hsq/stats", timeout=10).json()["dumps_failed"])


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
