"""Figures to SVG and HTML text. Pure; every word of a run is escaped here.

A picture is stretched to its place, so its words stand beside it, in HTML, where they keep their size.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from hsqueue.report.bins import Bin

LONGEST_TEXT = 300


def words(text: object) -> str:
    """Anything as text of a page: escaped, on one line, without signs that cannot be seen, and not too long."""
    line = " ".join(str(text).split())[: LONGEST_TEXT + 1]
    shown = "".join(sign if sign.isprintable() else "?" for sign in line)
    return escape(shown if len(shown) <= LONGEST_TEXT else shown[:LONGEST_TEXT] + "…", quote=True)


def value(name: str, raw: int | float, shown: str | None = None) -> str:
    """A figure that programs can find: ``<data>`` with the exact value."""
    text = f"{raw:,}" if shown is None else shown
    return f'<data data-figure="{words(name)}" value="{raw}">{words(text)}</data>'


def _svg(width: float, height: float, label: str, shapes: str) -> str:
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" preserveAspectRatio="none" role="img" aria-label="{words(label)}">'
        f"{shapes}</svg>"
    )


def columns(bins: Sequence[Bin], names: Sequence[str], label: str) -> str:
    """A column for each bin, as high as its count. names: of the bins, for who points at one."""
    most = max((b.count for b in bins), default=0) or 1
    shapes = []
    for place, (one, name) in enumerate(zip(bins, names, strict=True)):
        height = 100 * one.count / most
        # A column that stands for something must be seen, however many others there are.
        height = max(height, 1.0) if one.count else 0.0
        shapes.append(
            f'<rect x="{place * 10 + 0.5:g}" y="{100 - height:.2f}" width="9" height="{height:.2f}">'
            f"<title>{words(name)}: {one.count:,}</title></rect>"
        )
    return _svg(10 * len(bins), 100, label, "".join(shapes))


def area(values: Sequence[float], top: float, label: str) -> str:
    """Steps of `values` over time, filled. top: what the full height stands for."""
    scale = 100 / top if top > 0 else 0.0
    heights = [100 - min(1.0, v * scale / 100) * 100 for v in values]
    steps = "".join(f"V{y:.2f}H{place + 1}" for place, y in enumerate(heights))
    return _svg(max(1, len(values)), 100, label, f'<path d="M0 100{steps}V100Z"/>')


def stack(parts: Sequence[tuple[str, float]], label: str) -> str:
    """One bar of parts side by side. parts: (class, amount)."""
    total = sum(amount for _, amount in parts) or 1.0
    shapes, left = [], 0.0
    for kind, amount in parts:
        width = 1000 * amount / total
        shapes.append(
            f'<rect class="{words(kind)}" x="{left:.3f}" y="0" width="{width:.3f}" height="10">'
            f"<title>{words(kind)}: {100 * amount / total:.1f}%</title></rect>"
        )
        left += width
    return _svg(1000, 10, label, "".join(shapes))


def bar(share: float, label: str, kind: str = "") -> str:
    """One bar, `share` of its place long."""
    return _svg(100, 10, label, f'<rect class="{words(kind)}" width="{100 * min(1.0, share):.2f}" height="10"/>')
