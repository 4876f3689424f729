"""How long the samples are, and how large their files."""

from __future__ import annotations

from hsqueue.report.bins import Bin, byte_unit, histogram
from hsqueue.report.gather import Report
from hsqueue.report.pictures import columns, value
from hsqueue.report.text import section
from hsqueue.wording import plural, readable_bytes


def lengths(report: Report) -> str:
    found = report.tally.lengths
    if not found:
        return ""
    bins = histogram(found)
    middle = _median(found)
    caption = (
        f"{plural(found.total(), 'sample')}, {min(found):,} to {max(found):,} tokens, "
        f"half of them up to {value('median_tokens', middle)}"
    )
    return _chart("Lengths", bins, 1.0, "tokens", caption)


def sizes(report: Report) -> str:
    found = report.tally.sizes
    if not found:
        return ""
    unit, name = byte_unit(max(found))
    total = report.tally.file_bytes
    caption = (
        f"{value('file_bytes', total, readable_bytes(total))} in files, {readable_bytes(min(found))} to "
        f"{readable_bytes(max(found))} each"
    )
    return _chart("Files", histogram(found, unit), unit, name, caption)


def _chart(title: str, bins: tuple[Bin, ...], unit: float, name: str, caption: str) -> str:
    names = [_name(one, unit, name) for one in bins]
    axis = [_edge(bins[0].low / unit), _edge(bins[len(bins) // 2].low / unit)]
    last = bins[-1]
    end, more = (last.low, "and more ") if last.high is None else (last.high, "")
    axis.append(f"{_edge(end / unit)} {more}{name}")
    svg = columns(bins, names, f"{title}: how many samples by {name}")
    marks = "".join(f"<span>{mark}</span>" for mark in axis)
    most = max(one.count for one in bins)
    return section(
        title,
        f'<figure class="chart">{svg}<div class="axis">{marks}</div>'
        f"<figcaption>{caption}. The highest column stands for {plural(most, 'sample')}.</figcaption></figure>",
    )


def _name(one: Bin, unit: float, name: str) -> str:
    if one.high is None:
        return f"{_edge(one.low / unit)} {name} and more"
    return f"{_edge(one.low / unit)} to {_edge(one.high / unit)} {name}"


def _edge(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) else f"{number:.3g}"


def _median(counts: dict[int, int]) -> int:
    rank, seen = (sum(counts.values()) + 1) // 2, 0
    for number in sorted(counts):
        seen += counts[number]
        if seen >= rank:
            return number
    return 0
