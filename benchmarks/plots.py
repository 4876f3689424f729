"""Draws docs/benchmarks/*.svg from the results beside them.

python benchmarks/plots.py [--directory docs/benchmarks]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
# The same result gives the same file, so that a change of it is one of the figures.
mpl.rcParams.update({"svg.hashsalt": "hsqueue", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False})

import matplotlib.pyplot as plt  # noqa: E402

SIZE = (7.2, 2.8)
BLUE, ORANGE, GREY = "#3465a4", "#ce5c00", "#888a85"
NAMES = {"2048": "2,048 tokens", "512": "512 tokens", "mix": "16 to 8,000 tokens"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, default=Path(__file__).resolve().parents[1] / "docs" / "benchmarks")
    directory = parser.parse_args().directory
    for name, draw in PLOTS.items():
        source = directory / f"{name}.json"
        if source.exists():
            figure = draw(json.loads(source.read_text())["figures"])
            figure.tight_layout()
            figure.savefig(directory / f"{name}.svg", metadata={"Date": None})
            plt.close(figure)


def publish(figures: Any) -> Any:
    """Throughput of every round, and the median."""
    figure, places = plt.subplots(1, len(figures), figsize=SIZE, sharey=True)
    for place, found in zip(places, figures, strict=True):
        total = found["files"] * found["bytes_a_file"] / 1e9
        names = list(found["seconds"])
        for number, name in enumerate(names):
            color = ORANGE if name.startswith("publish") else BLUE
            place.barh(number, total / found["seconds_median"][name], color=color, alpha=0.5)
            place.plot([total / s for s in found["seconds"][name]], [number] * found["rounds"], ".", color=color)
        place.set_yticks(range(len(names)), names)
        place.set(title=f"files of {found['bytes_a_file'] / 2**20:.0f} MiB", xlabel="GB/s, each round and the median")
    places[0].invert_yaxis()
    return figure


def worker(figures: Any) -> Any:
    """Memory over the run, and processor time."""
    figure, (left, right) = plt.subplots(1, 2, figsize=SIZE)
    for color, (name, found) in zip((BLUE, ORANGE), figures.items(), strict=False):
        series = found["memory_mib_over_time"]
        left.plot([k * found["seconds"] / len(series) for k in range(len(series))], series, color=color, label=name)
    left.set(title="all processes of a worker", xlabel="s", ylabel="MiB", ylim=(0, 320))
    left.axhline(300, color=GREY, linestyle=":")
    left.legend(frameon=False)
    names = list(figures)
    copies = [sum(found["copy_alone_ms"]) / 2 for found in figures.values()]
    right.bar(names, copies, color=GREY, label="the copy alone")
    beyond = [found["processor_ms_a_sample"] - copy for found, copy in zip(figures.values(), copies, strict=True)]
    right.bar(names, beyond, bottom=copies, color=BLUE, label="beyond it")
    right.set(title="processor time a sample", ylabel="ms")
    right.legend(frameon=False)
    return figure


def planning(figures: Any) -> Any:
    """Memory and rate by the number of records."""
    figure, (left, right) = plt.subplots(1, 2, figsize=SIZE)
    records = [found["records"] for found in figures]
    left.plot(records, [found["peak_rss_mib"] for found in figures], "o-", color=BLUE)
    left.set(title="peak memory", xscale="log", xlabel="records", ylabel="MiB", ylim=(0, None))
    right.plot(records, [found["records_per_second"] / 1000 for found in figures], "o-", color=BLUE)
    right.set(title="rate", xscale="log", xlabel="records", ylabel="1,000 records/s", ylim=(0, None))
    return figure


def engines(figures: Any) -> Any:
    """How near to linear, and Redis' share of a core."""
    figure, (left, right) = plt.subplots(1, 2, figsize=SIZE)
    counts = [found["engines"] for found in figures]
    left.plot(counts, [found["samples_per_s"] for found in figures], "o-", color=BLUE, label="measured")
    ideal = [found["samples_per_s"] / found["of_linear"] for found in figures]
    left.plot(counts, ideal, ":", color=GREY, label="engines never idle")
    left.set(title="samples/s", xlabel="engines", ylim=(0, None))
    left.legend(frameon=False)
    right.plot(counts, [100 * found["redis_share_of_a_core"] for found in figures], "o-", color=ORANGE)
    right.set(title="Redis", xlabel="engines", ylabel="% of a core", ylim=(0, None))
    for place in (left, right):
        place.set_xticks(counts)
    return figure


def ledger(figures: Any) -> Any:
    """Memory a sample and commits a second."""
    sizes = [name for name in figures if name.isdecimal()]
    labels = [f"{int(name):,}" for name in sizes]
    figure, (left, right) = plt.subplots(1, 2, figsize=SIZE)
    left.bar(labels, [figures[name]["bytes_a_sample"] for name in sizes], color=BLUE)
    left.axhline(2, color=GREY, linestyle=":")
    left.set(title="bytes of Redis a sample", xlabel="samples")
    right.bar(labels, [figures[name]["committed_samples_per_s"] for name in sizes], color=ORANGE)
    right.axhline(50_000, color=GREY, linestyle=":")
    right.set(title="samples committed a second", xlabel="samples")
    return figure


def steady(figures: Any) -> Any:
    """A worker's rate beside prefill alone, for each kind of prompts."""
    figure, place = plt.subplots(figsize=SIZE)
    for number, found in enumerate(figures):
        place.barh(number - 0.18, sum(found["alone"]) / 2000, 0.34, color=GREY)
        place.barh(number + 0.18, found["steady"] / 1000, 0.34, color=BLUE)
        place.text(found["steady"] / 1000, number + 0.18, f" {found['ratio']:.3f}", va="center")
    place.set_yticks(range(len(figures)), [NAMES.get(found["workload"], found["workload"]) for found in figures])
    place.invert_yaxis()
    place.set(title=" ", xlabel="1,000 tokens/s, two minutes; the number is the ratio")
    figure.legend(["prefill alone", "hsqueue worker"], frameon=False, loc="upper center", ncols=2)
    return figure


def ways(figures: Any) -> Any:
    """Every way's share of prefill alone."""
    figure, places = plt.subplots(1, len(figures), figsize=SIZE, sharey=True)
    for place, found in zip(places, figures, strict=True):
        names = list(found["ratios"])
        for number, name in enumerate(names):
            share = found["ratios"][name]
            place.barh(number, share, color={"alone": GREY, "worker": BLUE}.get(name, ORANGE))
            place.text(share, number, f" {share:.3f}", va="center")
        place.set_yticks(range(len(names)), names)
        place.set(title=NAMES[found["workload"]], xlabel="of prefill alone", xlim=(0, 1.2))
    places[0].invert_yaxis()
    return figure


PLOTS: dict[str, Callable[[Any], Any]] = {
    "publish": publish, "worker": worker, "planning": planning, "engines": engines, "ledger": ledger,
    "h200-steady": steady, "h200-ways": ways,
}  # fmt: skip

if __name__ == "__main__":
    main()
