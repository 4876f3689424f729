"""A page of hsqueue's, read as a browser reads it."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = frozenset({"meta", "link", "img", "br", "hr", "input", "base", "source"})


@dataclass
class Page:
    """tags: how often each stands there. attributes: (tag, name, value) of all. figures: exact values by name.
    text: what is read. titles: of what is pointed at.
    """

    tags: dict[str, int] = field(default_factory=dict)
    attributes: list[tuple[str, str, str]] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    text: str = ""


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.page, self.open = Page(), list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.page.tags[tag] = self.page.tags.get(tag, 0) + 1
        self.page.attributes += [(tag, name, value or "") for name, value in attrs]
        given = dict(attrs)
        if "data-figure" in given:
            name = str(given["data-figure"])
            assert name not in self.page.figures, name
            self.page.figures[name] = float(str(given["value"]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> ends nothing"
        assert self.open[-1] == tag, f"</{tag}> ends {self.open[-1]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.page.text += data


def read_page(text: str) -> Page:
    """Fails where an element is not closed, or a figure stands there twice."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == [], reader.open
    return reader.page
