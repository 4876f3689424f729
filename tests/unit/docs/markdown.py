"""What the tests of the documentation read out of its pages: sections, tables, links, shell blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
MADE = {"demo-run", "build", "dist", "node_modules"}
"""Directories that make makes."""


def pages() -> list[Path]:
    """Every Markdown file of the repository."""
    found = []
    for path in sorted(ROOT.rglob("*.md")):
        parts = path.relative_to(ROOT).parts
        if not any(part.startswith(".") or part in MADE for part in parts[:-1]):
            found.append(path)
    return found


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def without_blocks(text: str) -> str:
    """`text` without its fenced blocks, in which ``#`` and brackets mean other things."""
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def headings(text: str) -> list[tuple[int, str]]:
    """``(level, title)`` in order."""
    return [(len(m[1]), m[2].strip()) for m in re.finditer(r"^(#+) (.*)$", without_blocks(text), re.MULTILINE)]


def section(text: str, title: str) -> str:
    """From the heading `title` to the next one of its level or above."""
    found = re.search(rf"^(#+) {re.escape(title)}\n", text, re.MULTILINE)
    assert found, f"no heading {title!r}"
    rest = text[found.end() :]
    end = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def own(text: str, title: str) -> str:
    """As ``section``, without the sections under it."""
    rest = section(text, title)
    below = re.search(r"^#+ ", rest, re.MULTILINE)
    return rest[: below.start()] if below else rest


def rows(text: str) -> list[list[str]]:
    """The cells of every row of every table in `text`, heads left out."""
    found: list[list[str]] = []
    for line in text.splitlines():
        if not line.startswith("|"):
            continue
        if re.fullmatch(r"\|(-+\|)+", line):
            found.pop()
            continue
        found.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return found


def codes(cell: str) -> list[str]:
    """What stands between backticks."""
    return re.findall(r"`([^`]+)`", cell)


def first_codes(text: str) -> list[str]:
    """Everything in backticks in the first cells of the tables of `text`, in order."""
    return [code for row in rows(text) for code in codes(row[0])]


def links(text: str) -> Iterator[str]:
    """Targets of links, outside of fenced blocks."""
    yield from re.findall(r"\]\(([^)\s]+)\)", without_blocks(text))


def anchors(text: str) -> set[str]:
    """What links may name behind ``#``, as GitHub makes it of headings."""
    return {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for _, title in headings(text)}


def shell_blocks(text: str) -> list[str]:
    return re.findall(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
