"""How fast it went, who worked, and where the time of a sample goes."""

from __future__ import annotations

from hsqueue.contracts.meters import STAGES
from hsqueue.report.gather import Report
from hsqueue.report.pictures import area, stack, value, words
from hsqueue.report.text import clock, section, short, table
from hsqueue.wording import plural, readable_seconds

MOST_WORKERS = 256
STAGE_WORDS = {
    "engine": "waiting for the engine",
    "dump": "waiting for the dump",
    "volume": "copying to the volume",
    "ledger": "noting it in the ledger",
}


def pace(report: Report) -> str:
    """All workers together, over time."""
    found = report.rates
    if found is None:
        return ""
    together = found.together
    top, tokens = max(together), sum(w.tokens for w in found.workers)
    mean = tokens / found.busy if found.busy else 0.0
    svg = area(together, top, "tokens a second over time, all workers together")
    return section(
        "Tokens a second",
        f'<figure class="chart">{svg}<div class="axis"><span>{clock(found.began)}</span>'
        f"<span>{clock(found.ended)}</span></div><figcaption>{value('tokens_per_second', round(mean, 1), short(mean))} "
        f"on average while at work, {short(top)} at the highest point. What a lease did counts evenly over its life."
        "</figcaption></figure>",
        wide=True,
    )


def workers(report: Report) -> str:
    """Each worker over time, all on one scale, so that a slow one is seen."""
    found = report.rates
    if found is None:
        return ""
    top = max((max(w.rates) for w in found.workers), default=0.0)
    rows = [
        [
            words(w.worker), area(w.rates, top, f"tokens a second of {w.worker} over time"),
            value(f"rate {w.worker}", round(w.rate, 1), short(w.rate)), f"{w.samples:,}",
            words(readable_seconds(w.busy)),
        ]
        for w in found.workers[:MOST_WORKERS]
    ]  # fmt: skip
    head = [
        ("worker", "name"), ("tokens a second, one scale for all", "small"), ("while at work", "number"),
        ("samples", "number optional"), ("at work", "number optional"),
    ]  # fmt: skip
    left = len(found.workers) - MOST_WORKERS
    more = f'<p class="quiet">{plural(left, "more worker")} not shown.</p>' if left > 0 else ""
    return section("Workers", table(head, rows) + more, wide=True, kind="long")


def time_spent(report: Report) -> str:
    """Where the time of a sample goes, from its request to its entry in the ledger."""
    seconds = report.tally.seconds
    total, samples = sum(seconds.values()), sum(span.samples for span in report.tally.spans)
    if not total or not samples:
        return ""
    bar = stack([(stage, seconds[stage]) for stage in STAGES], "where the time of a sample goes")
    rows = [
        [
            f'<span class="key {stage}"><span>{STAGE_WORDS[stage]}</span></span>',
            value(f"seconds {stage}", seconds[stage], f"{100 * seconds[stage] / total:.1f}%"),
            _duration(seconds[stage] / samples),
        ]
        for stage in STAGES
    ]
    head = [("", ""), ("share", "number"), ("each sample", "number")]
    return section("Where the time of a sample goes", f'<figure class="stack">{bar}</figure>\n{table(head, rows)}')


def _duration(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
