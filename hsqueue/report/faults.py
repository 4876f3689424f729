"""What failed, and what did not fail although something went wrong."""

from __future__ import annotations

from collections.abc import Mapping

from hsqueue.report.gather import Report
from hsqueue.report.pictures import bar, value, words
from hsqueue.report.text import section, table
from hsqueue.wording import plural

MOST_KINDS = 40


def failures(report: Report) -> str:
    """Samples without a file, by what they ended with."""
    found = report.tally.given_up
    t = report.totals
    if not found:
        known = t.skipped + t.failed
        told = "No sample failed and none was skipped." if not known else (
            f"{plural(known, 'sample')} ended without a file; their shards have no manifest yet. "
            "hsqueue status names the newest."
        )  # fmt: skip
        return section("What failed", f"<p>{words(told)}</p>")
    most = max(found.values())
    rows = []
    for (ending, error), samples in found.most_common(MOST_KINDS):
        example = report.tally.examples[ending, error]
        rows.append([
            f'<span class="key {words(ending)}"><span>{words(error)}</span></span>'
            f'<span class="quiet">sample {example.index:,}: {words(example.detail)}</span>',
            bar(samples / most, f"{samples} samples", ending), value(f"{ending} {error}", samples),
        ])  # fmt: skip
    head = [("ended with, and one of them", ""), ("", "bar"), ("samples", "number")]
    return section("What failed", table(head, rows) + _left(len(found)), wide=True, kind="long")


def survived(report: Report) -> str:
    """Faults that cost time and no sample."""
    t = report.tally
    tiles = "".join(
        f"<div><dt>{name}</dt><dd>{value(key, number)}</dd></div>"
        for name, key, number in (
            ("requests repeated", "retries", t.retries.total()), ("shards taken over", "lost", t.lost),
            ("engine deaths met", "engine_downs", t.engine_downs), ("ledger rebuilt", "rebuilds", report.rebuilds),
        )
    )  # fmt: skip
    return section("Faults survived", f'<dl class="tiles">{tiles}</dl>' + _bars("repeated since", t.retries, "retries"))


def rejected(report: Report) -> str:
    """Lines of the prompts that never became samples."""
    if not report.rejected:
        return ""
    found = dict(sorted(report.rejected.items(), key=lambda item: -item[1]))
    return section("Lines that were not planned", _bars("reason", found, "rejected"), wide=True)


def _bars(title: str, found: Mapping[str, int], figure: str) -> str:
    if not found:
        return ""
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    most = ordered[0][1] or 1
    rows = [
        [words(name), bar(count / most, f"{name}: {count}"), value(f"{figure} {name}", count)]
        for name, count in ordered[:MOST_KINDS]
    ]
    return table([(title, "name"), ("", "bar"), ("times" if figure == "retries" else "lines", "number")], rows) + _left(
        len(ordered)
    )


def _left(kinds: int) -> str:
    return f'<p class="quiet">{plural(kinds - MOST_KINDS, "rarer kind")} not shown.</p>' if kinds > MOST_KINDS else ""
