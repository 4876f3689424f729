"""Prompts sent as the worker sends them, their dumps taken as the worker takes them, held against transformers."""

from __future__ import annotations

import array
import itertools
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import requests
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from hsqueue.contracts.dump import AUX, INPUT_IDS, LAST, LAST_PRENORM
from hsqueue.contracts.rid import RequestId
from hsqueue.contracts.sample import Sample
from hsworker.dumps import RidDumps
from hsworker.engine import EngineClient
from hsworker.matching import check_dump, check_response
from tests.sglang.models import VOCABULARY
from tests.sglang.server import Server

DUMP_SECONDS = 30.0
AUX_BAR = 1e-3
"""Absolute; values reach 110. Batching and chunking change the order of sums in float32."""
LAST_BAR = 1e-4
RETURNS = "--enable-return-hidden-states"
NUMBERS = itertools.count()


def prompt(seed: int, tokens: int) -> list[int]:
    chance = random.Random(seed)
    return [chance.randrange(3, VOCABULARY) for _ in range(tokens)]


def new_rid() -> RequestId:
    return RequestId("test", next(NUMBERS), time.time_ns() % 10**15, 0)


@dataclass(frozen=True, slots=True)
class Difference:
    """Greatest absolute differences from the reference. layers: of each auxiliary layer. relative: of any layer and of
    the state before the norm, over the greatest value there. chunks: rows of each prefill chunk. ids: all equal.
    """

    layers: tuple[float, ...]
    last: float
    prenorm: float
    relative: float
    chunks: tuple[int, ...]
    ids: bool

    @property
    def aux(self) -> float:
        return max(self.layers)

    def within_bars(self) -> bool:
        return self.ids and self.aux <= AUX_BAR and self.last <= LAST_BAR and self.prenorm <= AUX_BAR


def distance(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The greatest absolute difference."""
    return float((found - expected).abs().max())


class Reference:
    """The same weights in transformers."""

    def __init__(self, server: Server) -> None:
        self._model: Any = AutoModelForCausalLM.from_pretrained(server.model, dtype=torch.float32).eval()
        self._decoder = self._model.model
        self._prenorm: torch.Tensor | None = None
        self._decoder.norm.register_forward_pre_hook(self._see)

    def _see(self, _: object, given: tuple[torch.Tensor, ...]) -> None:
        self._prenorm = given[0]

    def states(self, ids: Sequence[int], layers: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """aux [S, A*H], last [S, H] after the final norm, and before it."""
        with torch.no_grad():
            out = self._decoder(torch.tensor([list(ids)]), output_hidden_states=True, use_cache=False)
        assert self._prenorm is not None
        depth = len(out.hidden_states) - 1
        # transformers' own last entry is normalised; the contract's is not.
        inputs = [*out.hidden_states[:depth], self._prenorm]
        return torch.cat([inputs[k][0] for k in layers], dim=-1), out.last_hidden_state[0], self._prenorm[0]


class Prober:
    """Sends prompts to `server` and compares what it captured."""

    def __init__(self, server: Server, in_flight: int = 64) -> None:
        self.server, self.card = server, server.card()
        self.client = EngineClient(server.url, connections=in_flight)
        self.dumps = RidDumps(server.dump_dir)
        self.reference = Reference(server)

    def fetch(self, ids: Sequence[int]) -> tuple[dict[str, torch.Tensor], tuple[int, ...]]:
        """One prompt through the worker's own checks: its dump's tensors and chunks, the dump removed."""
        rid = new_rid()
        sample = Sample(rid.index, "", array.array("q", ids), bytes(len(ids)))
        check_response(self.client.prefill(str(rid), list(ids)), str(rid), len(ids))
        dump = self.dumps.wait(rid, sample, DUMP_SECONDS)
        try:
            check_dump(dump.meta, dump.file, dump.ids, str(rid), sample, self.card.target)
            return load_file(dump.path), dump.meta.chunks
        finally:
            self.dumps.forget(rid, orphaned=False)

    def fetch_with_own(self, ids: Sequence[int]) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        """The dump of one prompt, and [S, width] of what SGLang itself returns of the same pass, in a server with the
        option RETURNS. JSON keeps every bit of a float32.
        """
        rid = new_rid()
        body = {
            "input_ids": list(ids),
            "rid": str(rid),
            "extra_key": str(rid),
            "return_hidden_states": True,
            "sampling_params": {"max_new_tokens": 1, "temperature": 0},
        }
        answer = requests.post(f"{self.server.url}/generate", json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        sample = Sample(rid.index, "", array.array("q", ids), bytes(len(ids)))
        tensors = load_file(self.dumps.wait(rid, sample, DUMP_SECONDS).path)
        self.dumps.forget(rid, orphaned=False)
        own = torch.tensor(answer.json()["meta_info"]["hidden_states"][0], dtype=torch.float32)
        return tensors, own.reshape(len(ids), -1)

    def compare(self, ids: Sequence[int]) -> Difference:
        tensors, chunks = self.fetch(ids)
        aux, last, prenorm = self.reference.states(ids, self.card.layers)
        count = len(self.card.layers)
        wanted = [*aux.chunk(count, dim=-1), prenorm]
        found = [*tensors[AUX].chunk(count, dim=-1), tensors.get(LAST_PRENORM, prenorm)]
        off = [distance(one, other) for one, other in zip(found, wanted, strict=True)]
        return Difference(
            layers=tuple(off[:count]),
            last=distance(tensors.get(LAST, last), last),
            prenorm=off[count],
            relative=max(d / float(w.abs().max()) for d, w in zip(off, wanted, strict=True)),
            chunks=chunks,
            ids=tensors[INPUT_IDS].tolist() == list(ids),
        )

    def compare_all(self, prompts: Sequence[Sequence[int]], in_flight: int) -> list[Difference]:
        """Many prompts with `in_flight` of them at a time. Raises whatever one of them raises."""
        with ThreadPoolExecutor(in_flight) as pool:
            return list(pool.map(self.compare, prompts))

    def fetch_all(self, prompts: Sequence[Sequence[int]], in_flight: int) -> None:
        """The worker's checks alone, for when there are too many to compute again."""
        with ThreadPoolExecutor(in_flight) as pool:
            for _ in pool.map(self.fetch, prompts):
                pass
