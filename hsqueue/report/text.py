"""Words and frames that the report's sections share."""

from __future__ import annotations

import time

from hsqueue.report.pictures import words


def section(title: str, body: str, *, wide: bool = False, kind: str = "") -> str:
    """body: HTML. wide: over the whole page. kind: more classes."""
    classes = " ".join(filter(None, ("wide" if wide else "", kind)))
    return f'<section class="{classes}">\n<h2>{words(title)}</h2>\n{body}\n</section>'


def clock(seconds: float) -> str:
    """Unix seconds as a date that means the same everywhere."""
    try:
        return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):
        return "at no known time"


def table(head: list[tuple[str, str]], rows: list[list[str]]) -> str:
    """head: (title, class) of each column. rows: cells, as HTML."""
    titles = "".join(f'<th class="{kind}">{words(title)}</th>' for title, kind in head)
    body = "".join(
        "<tr>" + "".join(f'<td class="{kind}">{cell}</td>' for (_, kind), cell in zip(head, row, strict=True)) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"


def short(number: float) -> str:
    """Three digits and a word that says how large: 1,234 as it is, 12.3 million."""
    for size, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if number >= size:
            return f"{number / size:.3g} {name}"
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
