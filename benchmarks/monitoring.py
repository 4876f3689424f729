"""What monitoring costs a worker at full speed: with it and without it, side by side, and by its parts.

    python benchmarks/monitoring.py DIRECTORY [--rounds 40] [--tokens 256] [--hidden 16] [--json FILE]

DIRECTORY is the volume; /dev/shm stands for a fast one. One process works shards as a worker's child does, one after
the other, beside a simulated engine that answers at once, so that the worker is what bounds the speed. In turn with
all that monitoring writes (gauges, times and counters, the pace in each commit, counters to Redis every five seconds,
signs of life every two) and with all of it taken out. Small samples are the worst case: the cost is by the sample.

Each pair of shards gives one ratio; medians and quartiles are reported. Processor seconds are those of the working
process and of Redis, which other programs on the machine disturb less than the clock; of those the least disturbed
tenth of either kind is compared as well. The parts are timed alone, by the processor time of their thread, and put
against the processor time of a sample.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from arguments import parser
from fleet import engines, make_run
from machine import write_result
from queued import known, redis_in

from hsqueue.contracts.message import ShardMessage
from hsqueue.contracts.meters import DUMP, ENGINE, LEDGER, VOLUME
from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.lua import PACE, PACED, script_text
from hsqueue.monitoring.limits import HEARTBEAT
from hsqueue.planning.target import read_card
from hsqueue.settings import Settings
from hsworker.account import METER_SECONDS
from hsworker.gauges import Gauge
from hsworker.heartbeat import Heartbeat
from hsworker.life import Life
from hsworker.pinning import Pin
from hsworker.station import Station
from hsworker.times import Times

SHARD = 256
RATE = 1e9
REPEATS = 2000
BETWEEN_WRITES = 200


@dataclass(frozen=True, slots=True)
class Round:
    """One shard. seconds: by the clock. processor: of this process and of Redis."""

    seconds: float
    processor: float


class NoGauge(Gauge):
    def asked(self) -> None:
        pass

    def answered(self, seconds: float | None) -> None:
        pass

    @contextmanager
    def publication(self, tokens: int) -> Iterator[None]:
        yield


class NoTimes(Times):
    def add(self, stage: str, seconds: float) -> None:
        pass

    def count(self, **numbers: int) -> None:
        pass


def without_pace(ledger: Ledger) -> dict[str, Any]:
    """The ledger's scripts as they would be if nobody asked how fast a run goes."""
    nothing = "local function begin_pace() end\nlocal function note_pace() end\n"
    pace = script_text(PACE)
    clock = pace.partition("-- Returns since when")[0].replace("local PAUSE = 300000\n", "")
    texts = {name: clock + nothing + script_text(name).removeprefix(pace) for name in PACED}
    return {**ledger._scripts, **{name: ledger.client.register_script(text) for name, text in texts.items()}}


@contextmanager
def unmonitored(station: Station, run: str) -> Iterator[None]:
    ledger = station._open(run).ledger
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(station, "gauge", NoGauge()))
        stack.enter_context(mock.patch.object(ledger, "_scripts", without_pace(ledger)))
        stack.enter_context(mock.patch.object(Ledger, "add"))
        for name in ("add", "count"):
            stack.enter_context(mock.patch.object(Times, name, getattr(NoTimes, name)))
        yield


def main() -> None:
    made = parser(__doc__)
    made.add_argument("directory", type=Path)
    made.add_argument("--rounds", type=int, default=40)
    made.add_argument("--tokens", type=int, default=256)
    made.add_argument("--hidden", type=int, default=16)
    options = made.parse_args()
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as dumps,
        tempfile.TemporaryDirectory(dir=options.directory) as volume,
    ):
        figures = measure(Path(dumps), Path(volume), options)
    for name, figure in figures.items():
        print(f"{name:60} {figure}")
    if options.json:
        write_result(options.json, figures, options.directory)


def measure(dumps: Path, volume: Path, options: argparse.Namespace) -> dict[str, Any]:
    places, root = dumps / "engines", volume / "run"
    with redis_in(volume / "redis") as server, engines(places, 1, RATE, options.hidden) as (_, urls):
        directory = places / "0"
        shards = 2 * (options.rounds + 1)
        info = make_run(root, read_card(directory).target, shards * SHARD, SHARD, options.tokens, shards)
        known(root, info, server.url)
        pin = Pin(urls[0], directory, "gpu0")
        pin.workspace.mkdir(mode=0o700)
        station = Station(pin, Settings(), server.url)
        heartbeat = Heartbeat(station, station.card.target.queue, Life)
        with_it, without = pairs(station, heartbeat, info.run, options.rounds)
        return {**compared(with_it, without), **parts(station, heartbeat, info.run, without)}


def pairs(station: Station, heartbeat: Heartbeat, run: str, rounds: int) -> tuple[list[Round], list[Round]]:
    """The first pair warms up and counts for nothing."""
    with_it, without = [], []
    for number in range(rounds + 1):
        order = (True, False) if number % 2 else (False, True)
        for place, monitored in enumerate(order):
            shard = 2 * number + place
            if monitored:
                with_it.append(timed(lambda shard=shard: work(station, run, shard), station, heartbeat))
            else:
                with unmonitored(station, run):
                    without.append(timed(lambda shard=shard: work(station, run, shard), station, None))
    return with_it[1:], without[1:]


def work(station: Station, run: str, shard: int) -> None:
    said = station.work(ShardMessage(run, shard, SHARD), lambda *_: None)
    assert said == f"{SHARD}/{SHARD} done", said


def timed(action: Callable[[], None], station: Station, heartbeat: Heartbeat | None) -> Round:
    """heartbeat: beats as often as it would in this time."""
    redis = redis_seconds(station)
    processor, began = time.process_time(), time.perf_counter()
    action()
    seconds = time.perf_counter() - began
    used = time.process_time() - processor
    if heartbeat is not None:
        used += seconds / HEARTBEAT * _thread_seconds(heartbeat._beat, 1)
    return Round(seconds, used + redis_seconds(station) - redis)


def redis_seconds(station: Station) -> float:
    found: Mapping[str, Any] = station.client.info("cpu")
    return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])


def compared(with_it: list[Round], without: list[Round]) -> dict[str, Any]:
    clock = [one.seconds / other.seconds - 1 for one, other in zip(with_it, without, strict=True)]
    processor = [one.processor / other.processor - 1 for one, other in zip(with_it, without, strict=True)]
    return {
        "samples a second, with": round(SHARD / statistics.median(one.seconds for one in with_it), 1),
        "samples a second, without": round(SHARD / statistics.median(one.seconds for one in without), 1),
        "more time by the clock, paired: median and quartiles": percent(clock),
        "more processor time, paired: median and quartiles": percent(processor),
        "more processor time, the least disturbed tenth": f"{100 * (quiet(with_it) / quiet(without) - 1):+.2f}%",
    }


def quiet(rounds: list[Round]) -> float:
    """Mean processor seconds of the tenth with the fewest: other work on the machine only ever adds."""
    least = sorted(one.processor for one in rounds)
    return statistics.mean(least[: max(1, len(least) // 10)])


def percent(ratios: list[float]) -> list[str]:
    low, _, high = statistics.quantiles(ratios, n=4)
    return [f"{100 * value:+.2f}%" for value in (statistics.median(ratios), low, high)]


def parts(station: Station, heartbeat: Heartbeat, run: str, without: list[Round]) -> dict[str, Any]:
    """Each timed alone; their sum at the measured speed, of the time that a worker's child has."""
    gauge, times, ledger = Gauge(), Times(), station._open(run).ledger

    def sample() -> None:
        gauge.asked()
        gauge.answered(0.1)
        with gauge.publication(1):
            pass
        for stage in (ENGINE, DUMP, VOLUME):
            times.add(stage, 0.1)
        times.count(samples=1, tokens=1, bytes=1)

    def samples() -> None:
        """As many as come between two writes of the gauge's own thread."""
        for _ in range(BETWEEN_WRITES):
            sample()
        gauge.write()
        times.untold()

    def second() -> None:
        times.add(LEDGER, 0.1)
        increments = times.untold()
        ledger.add("gpu0@bench", dict.fromkeys(increments, 0))

    def with_redis(action: Callable[[], None]) -> float:
        before = redis_seconds(station)
        own = _thread_seconds(action, REPEATS)
        return own + (redis_seconds(station) - before) / REPEATS

    by_sample = _thread_seconds(samples, REPEATS // BETWEEN_WRITES) / BETWEEN_WRITES
    by_second = with_redis(second) / METER_SECONDS + with_redis(heartbeat._beat) / HEARTBEAT
    rate = SHARD / statistics.median(one.seconds for one in without)
    processor = statistics.median(one.processor for one in without) / SHARD
    return {
        "processor time of a sample without it, ms": round(1000 * processor, 3),
        "of it a sample, ms": round(1000 * by_sample, 4),
        "of it a second, ms": round(1000 * by_second, 3),
        "its share of the processor time, by its parts": f"{100 * (by_sample + by_second / rate) / processor:.2f}%",
    }


def _thread_seconds(action: Callable[[], None], times: int) -> float:
    began = time.thread_time()
    for _ in range(times):
        action()
    return (time.thread_time() - began) / times


if __name__ == "__main__":
    main()
