"""The report as a browser shows it: nothing cut off, nothing loaded, no complaint."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from hsqueue.contracts.meters import STAGES
from hsqueue.contracts.sample import Ending, GivenUp
from hsqueue.contracts.work import Work
from hsqueue.report.gather import gather
from hsqueue.report.page import page
from tests.support.volume import make_volume

LONG_NAME = "gpu0@" + "a-node-with-a-long-name" * 6


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a run with everything in it, some of it long."""
    place = tmp_path_factory.mktemp("report")
    volume = make_volume(place / "run", [3 + k % 17 for k in range(40)], 20)
    for shard, worker in enumerate(("gpu0@node1", LONG_NAME)):
        work = (
            Work()
            .opened(worker, 1e9 + 30 * shard)
            .closed(
                1e9 + 60 + 30 * shard,
                19,
                200,
                dict.fromkeys(STAGES, 2.5),
                {"DumpMissing": 3, "RequestTimeout": 9},
                True,
            )
        )
        failed = GivenUp(20 * shard, Ending.FAILED, 5, "DumpMissing", "no dump " + "of-a-long-rid." * 20)
        skipped = GivenUp(20 * shard + 1, Ending.SKIPPED, 1, "SampleTooLong", "more tokens than the engine accepts")
        done = volume.publish(*range(20 * shard + 2, 20 * shard + 20))
        volume.write_manifest(shard, done, [failed, skipped], work=work)
    path = place / "report.html"
    path.write_text(page(gather(volume.layout, volume.info, None)))
    return path


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_every_screen_and_asks_nobody_for_anything(
    chromium: Browser, report: Path, width: int, scheme: str, pytestconfig: pytest.Config
) -> None:
    context = chromium.new_context(
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        java_script_enabled=False,  # type: ignore[arg-type]
    )
    seen: list[str] = []
    shown = context.new_page()
    shown.on("console", lambda message: seen.append(message.text))
    shown.on("request", lambda request: seen.append(request.url))
    try:
        shown.goto(report.as_uri())
        assert seen == [report.as_uri()]
        for element in shown.locator("section, td, th, dd, h1, figcaption").all():
            box = element.bounding_box()
            if box is not None:
                assert box["x"] >= 0, element.text_content()
                assert box["x"] + box["width"] <= width, element.text_content()
        assert shown.locator("svg").count() > 10
        for picture in shown.locator("svg").all():
            box = picture.bounding_box()
            assert box is not None
            assert box["width"] > 20, picture.get_attribute("aria-label")
            assert box["height"] > 3, picture.get_attribute("aria-label")
        if pytestconfig.getoption("--screenshots"):
            place = Path(pytestconfig.getoption("--screenshots"))
            shown.screenshot(path=place / f"report-{width}-{scheme}.png", full_page=True)
    finally:
        context.close()


def test_on_paper_it_is_dark_on_light(chromium: Browser, report: Path) -> None:
    context = chromium.new_context(color_scheme="dark")
    shown = context.new_page()
    try:
        shown.emulate_media(media="print", color_scheme="dark")
        shown.goto(report.as_uri())
        colours = "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
        assert shown.evaluate(colours) == ["rgb(0, 0, 0)", "rgb(255, 255, 255)"]
    finally:
        context.close()
