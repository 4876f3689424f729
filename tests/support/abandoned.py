"""The two ways of finding a request's dump that were given up, as they were: kept to be seen to fail.

Both read the older layout, ``req_<counter>/`` with tensors and a ``meta.json``, and trust where they find it.
"""

from __future__ import annotations

import itertools
import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import requests
import torch

from tests.support.engine import Engine
from tests.support.waiting import comes_true

Taken = dict[int, tuple[Any, Any]]
"""Prompt -> (aux, last) that an approach took for its states."""

WAIT_SECONDS = 5.0


def predict_the_counter(server: Engine, prompts: Sequence[list[int]], concurrency: int) -> Taken:
    """Reads the server's counter once and expects the k-th request to be the k-th dump after it."""
    first = 1 + max((_counter(path) for path in server.dump_dir.glob("req_*")), default=-1)
    numbers, lock = itertools.count(first), threading.Lock()

    def take(prompt: list[int]) -> Path:
        with lock:
            number = next(numbers)
        _generate(server, prompt)
        return _wait(lambda: server.dump_dir / f"req_{number}")

    return _all(prompts, take, concurrency)


def clear_before_each_request(server: Engine, prompts: Sequence[list[int]], concurrency: int) -> Taken:
    """Empties the directory, sends one request, and takes what appears."""

    def take(prompt: list[int]) -> Path:
        for path in server.dump_dir.glob("req_*"):
            shutil.rmtree(path, ignore_errors=True)
        _generate(server, prompt)
        return _wait(lambda: next(iter(server.dump_dir.glob("req_*")), server.dump_dir / "none"))

    return _all(prompts, take, concurrency)


def _all(prompts: Sequence[list[int]], take: Callable[[list[int]], Path], concurrency: int) -> Taken:
    taken: Taken = {}

    def one(k: int) -> None:
        try:
            directory = take(prompts[k])
            # Still being written, or gone: the scripts skipped such samples.
            states = torch.load(directory / "hidden_states.pt", weights_only=True)
            taken[k] = (states["aux_hidden_states"], states["last_hidden_state"])
        except (OSError, RuntimeError, KeyError, EOFError, TimeoutError, requests.RequestException):
            return

    with ThreadPoolExecutor(concurrency) as pool:
        list(pool.map(one, range(len(prompts))))
    return taken


def _generate(server: Engine, prompt: list[int]) -> None:
    body = {"input_ids": prompt, "sampling_params": {"max_new_tokens": 0}}
    requests.post(f"{server.url}/generate", json=body, timeout=60)


def _wait(where: Callable[[], Path]) -> Path:
    path = where()

    def is_there() -> bool:
        nonlocal path
        path = where()
        return (path / "meta.json").exists()

    if not comes_true(is_there, WAIT_SECONDS, pause=0.01):
        raise TimeoutError
    return path


def _counter(path: Path) -> int:
    return int(path.name.removeprefix("req_"))
