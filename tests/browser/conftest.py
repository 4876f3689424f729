"""Debian's Chromium, driven by Playwright, which downloads nothing; pages that complain fail their test."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.support.flower import flower
from tests.support.redis import RedisServer, free_port, redis_server
from tests.support.tools import program

PASSWORD = "of-the-pages"
WIDTHS = {1280: 900, 390: 844}
PATIENCE = 60_000
"""Milliseconds for a page to show something; the machine may be busy."""
expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    path = program("chromium")
    with sync_playwright() as playwright:
        # As root, as CI runs, Chromium has no sandbox of its own.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass(frozen=True, slots=True)
class Site:
    """A running Flower. screenshots: where pictures of it go."""

    url: str
    redis: RedisServer
    browser: Browser
    screenshots: Path

    @contextlib.contextmanager
    def page(self, path: str, width: int = 1280, scheme: str = "light", quiet: bool = True) -> Iterator[Page]:
        """A page of one who is logged in. quiet: the browser must have had nothing to complain of."""
        context = self.browser.new_context(
            viewport={"width": width, "height": WIDTHS[width]}, color_scheme=scheme,  # type: ignore[arg-type]
            http_credentials={"username": "hsqueue", "password": PASSWORD},
        )  # fmt: skip
        context.set_default_timeout(PATIENCE)
        complaints: list[str] = []
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss())[1])
        page.on("request", lambda request: complaints.append(request.url) if self._is_foreign(request.url) else None)
        try:
            page.goto(f"{self.url}/{path}")
            yield page
            assert not quiet or complaints == []
        finally:
            context.close()

    def _is_foreign(self, url: str) -> bool:
        return not url.startswith((f"{self.url}/", "data:"))

    def picture(self, name: str, path: str, ready: Callable[[Page], object]) -> None:
        """The page as a wide and a narrow screen show it, light and dark. ready: waits for what must be in it."""
        for width in WIDTHS:
            for scheme in ("light", "dark"):
                with self.page(path, width, scheme) as page:
                    ready(page)
                    assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing is cut off"
                    page.screenshot(path=self.screenshots / f"{name}-{width}-{scheme}.png")


@pytest.fixture(scope="module")
def site(chromium: Browser, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Site]:
    place = tmp_path_factory.mktemp("site")
    screenshots = Path(pytestconfig.getoption("--screenshots") or place / "screenshots")
    screenshots.mkdir(parents=True, exist_ok=True)
    port = free_port()
    with (
        redis_server(place / "redis") as redis,
        flower(port, place / "flower.log", {"HSQ_REDIS_URL": redis.url, "HSQ_FLOWER_PASSWORD": PASSWORD}),
    ):
        yield Site(f"http://127.0.0.1:{port}", redis, chromium, screenshots)
