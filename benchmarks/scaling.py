"""How much several servers with a pinned worker each do together, over what the first of them does alone.

    python benchmarks/scaling.py --engine URL0 DIR0 --engine URL1 DIR1 --out DIRECTORY [--workload 2048] [--seconds 60]

One Redis, one run, one volume. The workers of all servers work for `--seconds`; before it and after it the first one
works alone for as long, on the same run. Rates are of tokens that the ledger calls done; every file of each shard that
has ended is read, byte for byte, and removed.
"""

from __future__ import annotations

import shutil
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from arguments import add_rate, add_volume, parser
from checking import Checker
from machine import write_result
from prepared import WARM_UP, Prepared, await_card, prepare
from queued import known, queue, redis_in
from working import await_server, start_worker

from hsqueue.ledger.ledger import Ledger
from hsqueue.planning.plan import load_run


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
    made = parser(__doc__)
    made.add_argument("--engine", nargs=2, action="append", required=True, metavar=("URL", "DUMP_DIR"))
    add_volume(made)
    made.add_argument("--workload", default="2048", choices=["512", "2048", "mix"])
    made.add_argument("--seconds", type=float, default=60.0)
    add_rate(made)
    options = made.parse_args()
    engines = [(url, Path(directory)) for url, directory in options.engine]
    for _, directory in engines:
        await_card(directory)
    # As much as all servers work off in one window and the first one in two more.
    seconds = (len(engines) + 2) * (options.seconds + 2 * WARM_UP)
    (one,) = prepare(options.out, engines[0][1], [options.workload], options.rate, seconds)
    for url, _ in engines:
        await_server(url)
    figures = measure(one, engines, options.seconds)
    print(figures)
    if options.json is not None:
        write_result(options.json, [asdict(figures)], options.out)


def measure(one: Prepared, engines: list[tuple[str, Path]], seconds: float) -> Figures:
    info = load_run(one.run)
    with redis_in(one.root / "redis") as redis:
        ledger = known(one.run, info, redis.url)
        queue(ledger, info)
        checker = Checker(one.run)
        rates = [rate(one, some, seconds, ledger, info.samples) for some in (engines[:1], engines, engines[:1])]
        checker.finish()
    shutil.rmtree(one.root)
    before, together, after = rates
    return Figures(
        one.workload.name, len(engines), seconds, (round(before), round(after)), round(together),
        round(2 * together / (before + after), 3), checker.verified.value, tuple(checker.wrong),
    )  # fmt: skip


def rate(one: Prepared, engines: list[tuple[str, Path]], seconds: float, ledger: Ledger, samples: int) -> float:
    """Tokens a second while a worker for each of `engines` is at work."""
    already = ledger.counts(samples).tokens
    workers = [
        start_worker(one.root / "worker.log", url, directory, ledger.url, {}, f"gpu{k}")
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
