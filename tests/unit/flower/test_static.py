"""Scripts and styles of the pages: nothing from elsewhere, nothing written as HTML, colours that all can tell apart."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from hsqueue.monitoring.flower.handlers import STATIC

CELLS = ("waiting", "queued", "working", "ended", "failed")
# Of Machado, Oliveira and Fernandes (2009), for linear RGB at full severity.
VISION = {
    "usual": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}
TELLABLE = 18.0
"""Distance of two colours in CIE Lab; from 2 on it can be seen side by side, from 10 on at a glance."""


@pytest.mark.parametrize("path", sorted(STATIC.iterdir()), ids=lambda path: path.name)
def test_nothing_comes_from_elsewhere_and_nothing_becomes_html(path: Path) -> None:
    text = path.read_text()
    for wrong in ("://", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "@import", "url("):
        assert wrong not in text


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_states_of_shards_can_be_told_apart(theme: str, vision: str) -> None:
    colours = {name: lab(seen(colour, vision)) for name, colour in cell_colours(theme).items()}
    for one, other in itertools.combinations(CELLS, 2):
        distance = sum((a - b) ** 2 for a, b in zip(colours[one], colours[other], strict=True)) ** 0.5
        assert distance >= TELLABLE, f"{one} and {other}: {distance:.0f}"


def cell_colours(theme: str) -> dict[str, str]:
    text = (STATIC / "samples.css").read_text()
    light, dark = text.split('[data-bs-theme="dark"] {', 1)
    part = (light if theme == "light" else dark).split("}")[0]
    return dict(re.findall(rf"--hsq-({'|'.join(CELLS)}): (#[0-9a-f]{{6}});", part))


def seen(colour: str, vision: str) -> tuple[float, ...]:
    """Linear RGB."""
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return tuple(min(1.0, max(0.0, sum(f * c for f, c in zip(row, linear, strict=True)))) for row in VISION[vision])


def lab(linear: tuple[float, ...]) -> tuple[float, float, float]:
    r, g, b = linear
    xyz = (
        (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505, 0.2126 * r + 0.7152 * g + 0.0722 * b,
        (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089,
    )  # fmt: skip
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)
