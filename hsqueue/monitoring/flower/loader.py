"""Templates of ours beside Flower's own, two of which get a few lines more."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tornado.template import BaseLoader, Template

from hsqueue.contracts.errors import UsageError

OURS = Path(__file__).parent / "templates"
TAB = """
        <li class="nav-item">
          <a class="nav-link{% if active_tab == 'samples' %} active{% end %}" href="{{ reverse_url('samples') }}"
            {% if active_tab == 'samples' %}aria-current="page"{% end %}>Samples</a>
        </li>"""
LIVE = """{% block extra_scripts %}
  <link rel="stylesheet" href="{{ reverse_url('samples-asset', 'tasks.css') }}">
  <script src="{{ reverse_url('samples-asset', 'tasks.js') }}"></script>
{% end %}
"""
NAVIGATION, EXTENDS = '<ul class="app-nav navbar-nav">', '{% extends "base.html" %}'
INLINE = """<script type="text/javascript">
  var autorefresh = {{ autorefresh }};
</script>"""
REFRESH = """<script src="{{ reverse_url('samples-asset', 'workers.js') }}"></script>"""

CHANGES: Mapping[str, tuple[str, str]] = {
    "navbar.html": (NAVIGATION, NAVIGATION + TAB),
    "tasks.html": (EXTENDS, EXTENDS + LIVE),
    # The only script that Flower writes into a page; our policy lets none of these run.
    "workers.html": (INLINE, REFRESH),
}
"""Of each of these templates of Flower's, a part and what stands in its place."""


class Loader(BaseLoader):  # type: ignore[misc]
    """flower: Flower's own directory of templates. Raises UsageError where they are others than those we know."""

    def __init__(self, flower: Path) -> None:
        super().__init__()
        self.flower = flower
        self.changed = {name: _changed(flower / name, *change) for name, change in CHANGES.items()}

    def resolve_path(self, name: str, parent_path: str | None = None) -> str:  # noqa: ARG002 - all lie side by side
        return name

    def _create_template(self, name: str) -> Template:
        if name in self.changed:
            return Template(self.changed[name], name=name, loader=self)
        path = OURS / name if (OURS / name).is_file() else self.flower / name
        return Template(path.read_bytes(), name=name, loader=self)


def _changed(path: Path, old: str, new: str) -> str:
    text = path.read_text()
    if text.count(old) != 1:
        raise UsageError(
            f"this Flower's {path.name} is not the one that hsqueue extends", do="Install flower>=2.2,<2.3."
        )
    return text.replace(old, new)
