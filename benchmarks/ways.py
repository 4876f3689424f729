"""How fast other ways of getting hidden states are, beside hsqueue on the same running server.

    python benchmarks/ways.py --url URL --dump-dir DIR --out DIRECTORY [--workloads 512 2048] [--seconds 15]

Each way gets the same prompts for `--seconds`:

- ``alone``: prefill, nothing captured.
- ``worker``: `hsqueue worker`, as benchmarks/steady.py measures it.
- ``one at a time``: `hsqueue worker` with one request in flight.
- ``script``: a loop over the prompts as a first script does it: clear the dump directory, send one request, wait for
  a file, read it into tensors with torch.load, write it with torch.save. The dump is put into the form that such a
  server's own torch.save gives it first, as that server does before it answers.
- ``json``: SGLang's own ``return_hidden_states``, eight requests in flight, the answers parsed. The server must have
  been started with ``--enable-return-hidden-states``; left out where it was not.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

import requests
import torch
from arguments import add_server, add_work, parser
from capture import prefill_alone
from machine import write_result
from prepared import Prepared, prepare
from safetensors.torch import load_file
from working import await_server, worker_rate

from hsqueue.contracts.rid import RequestId
from hsqueue.settings import Settings
from hsworker.engine import EngineClient

JSON_IN_FLIGHT = 8
JSON_SECONDS = 10.0


@dataclass(frozen=True)
class Figures:
    """rates: way -> tokens/s. ratios: of prefill alone."""

    workload: str
    rates: dict[str, int]
    ratios: dict[str, float]


def main() -> None:
    made = parser(__doc__)
    add_server(made)
    add_work(made, ("512", "2048"), 15.0)
    options = made.parse_args()
    prepared = prepare(options.out, options.dump_dir, options.workloads, options.rate, options.seconds)
    await_server(options.url)
    found = []
    for one in prepared:
        found.append(compare(one, options))
        print(found[-1], flush=True)
        if options.json is not None:
            write_result(options.json, [asdict(figures) for figures in found], options.out)


def compare(one: Prepared, options: argparse.Namespace) -> Figures:
    settings, name = Settings(), one.workload.name
    prompts = one.first()
    prefill_alone(options.url, prompts[:64], 64, f"{name}-ways-warm")
    limits = settings.max_in_flight, settings.max_tokens_in_flight
    rates = {"alone": prefill_alone(options.url, prompts, limits[0], f"{name}-ways", limits[1])}
    for way, in_flight in (("worker", settings.max_in_flight), ("one at a time", 1)):
        rates[way] = worker_rate(one, options.url, options.dump_dir, in_flight, options.seconds)
    script = Script(options)
    rates["script"] = for_seconds(one.prompts, options.seconds, 1, script.ask)
    shutil.rmtree(script.directory)
    if EngineClient(options.url).server_info().get("enable_return_hidden_states"):
        rates["json"] = for_seconds(one.prompts, JSON_SECONDS, JSON_IN_FLIGHT, JsonStates(options.url).ask)
    shutil.rmtree(one.root)
    return Figures(
        name, {way: round(rate) for way, rate in rates.items()},
        {way: round(rate / rates["alone"], 3) for way, rate in rates.items()},
    )  # fmt: skip


def for_seconds(
    prompts: list[list[int]], seconds: float, in_flight: int, ask: Callable[[int, list[int]], None]
) -> float:
    """Tokens a second of the prompts that were answered, up to the last of them."""
    began, done = time.monotonic(), 0

    def one(k: int) -> int:
        if time.monotonic() - began > seconds:
            return 0
        ask(k, prompts[k])
        return len(prompts[k])

    with ThreadPoolExecutor(in_flight) as pool:
        done = sum(pool.map(one, range(len(prompts))))
        return done / (time.monotonic() - began)


class Script:
    """Without the faults of a first script: it looks for the request's own file, so that it takes no other."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.url, self.dumps = options.url, options.dump_dir
        self.directory = options.out / "script"
        self.directory.mkdir(parents=True, exist_ok=True)
        self.session = requests.Session()

    def ask(self, k: int, prompt: list[int]) -> None:
        for path in self.dumps.glob("req_hsq.script.*"):
            shutil.rmtree(path)
        rid = RequestId("script", k, time.time_ns(), 0)
        body = {"input_ids": prompt, "rid": str(rid), "extra_key": str(rid),
                "sampling_params": {"max_new_tokens": 0, "temperature": 0}}  # fmt: skip
        self.session.post(f"{self.url}/generate", json=body, timeout=600).raise_for_status()
        dump = self.dumps / rid.directory / "hidden.safetensors"
        while not dump.exists():
            time.sleep(0.002)
        torch.save(load_file(dump), dump.with_suffix(".pt"))
        states = torch.load(dump.with_suffix(".pt"), weights_only=True)
        torch.save(states, self.directory / f"{k % 8}.pt")


class JsonStates:
    def __init__(self, url: str) -> None:
        self.url, self.session = url, requests.Session()

    def ask(self, k: int, prompt: list[int]) -> None:
        body = {"input_ids": prompt, "rid": f"json-{k}", "extra_key": f"json-{time.time_ns()}",
                "return_hidden_states": True, "sampling_params": {"max_new_tokens": 1, "temperature": 0}}  # fmt: skip
        answer = self.session.post(f"{self.url}/generate", json=body, timeout=600)
        answer.raise_for_status()
        states = torch.tensor(answer.json()["meta_info"]["hidden_states"][0])
        assert states.shape[0] == len(prompt), states.shape


if __name__ == "__main__":
    main()
