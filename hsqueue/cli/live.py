"""The screen on a terminal, drawn anew in place."""

from __future__ import annotations

from datetime import datetime

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from hsqueue.cli.console import printable
from hsqueue.cli.screen import screen
from hsqueue.cli.words import View


def draw(view: View, console: Console | None = None) -> None:
    """Once, wholly, however long it gets."""
    console = console or Console(highlight=False)
    console.print(screen(view, console.width, 1 << 16, datetime.now()))


class LiveScreen:
    """As a context manager. Each frame is written over the last one, in one piece, so nothing flickers.

    like: a console whose file is drawn on. whole: takes the terminal for itself, and gives it back as it was.
    """

    def __init__(self, like: Console, *, whole: bool) -> None:
        self.console = Console(file=like.file, highlight=False)
        self._live = Live(Text(), console=self.console, screen=whole, auto_refresh=False, transient=whole)

    def __enter__(self) -> LiveScreen:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def tell(self, event: str) -> None:
        """A line above the screen."""
        self.console.print(escape(printable(event)))

    def show(self, view: View) -> None:
        # One line stays free for the cursor.
        height = self.console.height - 1
        self._live.update(screen(view, self.console.width, height, datetime.now()), refresh=True)
