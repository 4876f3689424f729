"""How much several servers with a pinned worker each do together, over what the first of them does alone.

    python benchmarks/scaling.py --engine URL0 DIR0 --engine URL1 DIR1 --out DIRECTORY [--workload 2048] [--seconds 60]

One Redis, one run, one volume. The workers of all servers work for `--seconds`; before it and after it the first one
works alone for as long, on the same run. Rates are of tokens that the ledger calls done; every file of each shard that
has ended is read, byte for byte, and removed.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from checking import Checker
from machine import write_result
from steady import WARM_UP, Prepared, await_card, await_server, prepare, start_worker

from hsqueue.ledger.connect import connect
from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.rebuild import reconcile
from hsqueue.local.redis import EmbeddedRedis
from hsqueue.planning.plan import load_run
from hsqueue.queue.app import make_app
from hsqueue.queue.producer import enqueue
from hsqueue.settings import Settings
from hsqueue.store.layout import RunLayout


@dataclass(frozen=True)
class Figures:
    """alone: tokens/s of the first server, before and after. together: of all of them. ratio: of the two.
    verified: files read whole and right. wrong: what was found wrong.
    """

    workload: str
    servers: int
    seconds: float
    alone: tuple[float, float]
    together: float
    ratio: float
    verified: int
    wrong: tuple[str, ...]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", nargs=2, action="append", required=True, metavar=("URL", "DUMP_DIR"))
    parser.add_argument("--out", type=Path, required=True, help="on the volume; what is published there is removed")
    parser.add_argument("--workload", default="2048", choices=["512", "2048", "mix"])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=45_000, help="tokens/s expected of one server")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    engines = [(url, Path(directory)) for url, directory in options.engine]
    options.dump_dir, options.workloads, seconds = engines[0][1], [options.workload], options.seconds
    for _, directory in engines:
        await_card(directory)
    # prepare() plans for one server and one window; here are as many as servers, and two more.
    options.seconds = (len(engines) + 2) * (seconds + 2 * WARM_UP)
    (one,) = prepare(options)
    for url, _ in engines:
        await_server(url)
    figures = measure(one, engines, seconds)
    print(figures)
    if options.json is not None:
        write_result(options.json, [asdict(figures)], options.out)


def measure(one: Prepared, engines: list[tuple[str, Path]], seconds: float) -> Figures:
    server = EmbeddedRedis(one.root / "redis")
    layout, info = RunLayout(one.root / "run"), load_run(one.root / "run")
    try:
        ledger = reconcile(connect(server.url), server.url, layout, info).ledger
        enqueue(make_app(server.url), ledger, info)
        checker = Checker(layout.root)
        rates = [rate(one, some, seconds, ledger, server.url) for some in (engines[:1], engines, engines[:1])]
        checker.finish()
    finally:
        server.stop()
    shutil.rmtree(one.root)
    before, together, after = rates
    return Figures(
        one.workload.name, len(engines), seconds, (round(before), round(after)), round(together),
        round(2 * together / (before + after), 3), checker.verified.value, tuple(checker.wrong),
    )  # fmt: skip


def rate(one: Prepared, engines: list[tuple[str, Path]], seconds: float, ledger: Ledger, redis_url: str) -> float:
    """Tokens a second while a worker for each of `engines` is at work."""
    samples, in_flight = load_run(one.root / "run").samples, Settings().max_in_flight
    already = ledger.counts(samples).tokens
    workers = [
        start_worker(one.root, url, directory, in_flight, redis_url, f"gpu{k}")
        for k, (url, directory) in enumerate(engines)
    ]

    def tokens() -> int:
        for worker in workers:
            if worker.poll() is not None:
                raise SystemExit(f"a worker ended with status {worker.returncode}; see {one.root / 'worker.log'}")
        counts = ledger.counts(samples)
        if counts.pending == 0:
            raise SystemExit("the prompts did not last; give a higher --rate")
        return counts.tokens

    try:
        while len(set(ledger.live_holders().values())) < len(engines) or tokens() == already:
            time.sleep(0.1)
        time.sleep(WARM_UP)
        began, first = time.monotonic(), tokens()
        while time.monotonic() - began < seconds:
            time.sleep(0.5)
            tokens()
        return (tokens() - first) / (time.monotonic() - began)
    finally:
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
        for worker in workers:
            worker.wait(60)


if __name__ == "__main__":
    main()
