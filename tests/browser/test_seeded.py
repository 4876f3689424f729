"""The pages over ledgers that nobody works for: hostile text, large runs, loss of Redis, keys instead of a mouse."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from hsqueue.contracts.message import TASK_NAME
from hsqueue.contracts.sample import Ending, GivenUp
from hsqueue.ledger.ledger import Ledger
from hsqueue.queue.app import make_app
from tests.browser.conftest import Site
from tests.support.ledger import granted
from tests.support.seeded import HOSTILE, run_info, seed_run, seed_worker

LARGE = 100_000


@pytest.fixture(autouse=True)
def empty(site: Site) -> None:
    site.redis.client().flushall()


def test_an_empty_redis_says_what_to_do(site: Site) -> None:
    with site.page("samples") as page:
        expect(page.locator("#no-runs")).to_contain_text("hsqueue enqueue RUN")
        expect(page.locator("#no-workers")).to_be_visible()
        expect(page.locator("#live")).to_contain_text("Live")


def test_every_page_of_flower_still_works(site: Site) -> None:
    for path in ("", "workers", "tasks", "broker", "samples"):
        with site.page(path) as page:
            page.get_by_role("link", name="Samples").click()
            expect(page).to_have_url(f"{site.url}/samples")
            expect(page.locator("#live")).to_contain_text("Live")


def test_a_narrow_screen_has_a_menu(site: Site) -> None:
    with site.page("workers", width=390) as page:
        page.get_by_role("button", name="Toggle navigation").click()
        page.get_by_role("link", name="Samples").click()
        expect(page).to_have_url(f"{site.url}/samples")


def test_the_theme_can_be_chosen(site: Site) -> None:
    seed_run(site.redis, "r1", 100, failing=0.0)
    with site.page("samples/run/r1") as page:
        expect(page.locator("#legend li")).to_have_count(5)
        light = pixel(page, 0)
        page.locator("#theme-toggle").click()
        page.locator("[data-bs-theme-value=dark]").click()
        expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")
        page.wait_for_function("document.querySelector('html').dataset.bsTheme === 'dark'")
        assert legend(page, "e") != light
        assert pixel(page, 0) == legend(page, "e"), "the grid is drawn anew"


def test_hostile_tasks_are_text(site: Site) -> None:
    """Whoever may write to Redis may say anything of any task."""
    with make_app(site.redis.url).events.default_dispatcher(hostname=f"{HOSTILE}@x") as dispatcher:
        task = {"uuid": f"r1.7.a0{HOSTILE}", "name": TASK_NAME, "kwargs": HOSTILE, "args": HOSTILE}
        with site.page("tasks") as page:
            # Events reach those who listen at the time.
            row = page.locator("#tasks-table tbody tr")
            for _ in range(100):
                dispatcher.send("task-received", **task)
                dispatcher.send("task-failed", uuid=task["uuid"], exception=HOSTILE, traceback=HOSTILE)
                page.wait_for_timeout(300)
                if "FAILURE" in row.first.inner_text():
                    break
            expect(row.first).to_contain_text("<img src=x onerror=alert(1)>")
            expect(page.locator("main img")).to_have_count(0)
            row.first.locator("a[href*='/task/']").click()
            expect(page.locator("#task-page")).to_contain_text("<img src=x onerror=alert(1)>")
            expect(page.locator("main img")).to_have_count(0)


def test_hostile_text_is_text(site: Site) -> None:
    ledger = Ledger(site.redis.client(), site.redis.url, "r1")
    ledger.create(run_info("r1", 2, 4), [], [], [])
    hostile = GivenUp(0, Ending.FAILED, 1, HOSTILE, HOSTILE)
    ledger.commit(granted(ledger, 0, f"{HOSTILE}:/dumps"), [], [hostile])
    seed_worker(site.redis, HOSTILE, engine=HOSTILE, gpu=HOSTILE, host=HOSTILE, paused=HOSTILE, state="paused")
    site.redis.client().hset(ledger.keys.info, mapping={"model": HOSTILE, "dir": f"/{HOSTILE}"})
    with site.page("samples") as page:
        expect(page.locator("#failures li strong")).to_have_text(HOSTILE)
        expect(page.locator("#workers li a")).to_have_text(HOSTILE)
        expect(page.locator("main img, main script")).to_have_count(0)
    with site.page("samples/run/r1#0") as page:
        expect(page.locator("#about")).to_contain_text(HOSTILE)
        expect(page.locator("#shard strong")).to_have_text(HOSTILE)
        expect(page.locator("main img, main script")).to_have_count(0)


def test_an_inline_script_would_not_run(site: Site) -> None:
    """The policy's last line of defence, were something ever written as HTML."""
    with site.page("samples", quiet=False) as page:
        page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.ran = 1\">')")
        page.evaluate(
            "const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s)"
        )
        page.wait_for_function("document.images[document.images.length - 1].complete")
        assert page.evaluate("window.ran") is None


def test_a_hundred_thousand_shards(site: Site) -> None:
    seed_run(site.redis, "large", LARGE)
    seed_worker(site.redis, "gpu0@seeded")
    failed = 0
    with site.page("samples/run/large") as page:
        expect(page.locator("#legend li")).to_have_count(5)
        letters = page.evaluate("fetch('/api/samples/large/shards').then(a => a.json()).then(a => a.states)")
        assert len(letters) == LARGE
        failed = letters.index("f")
        size = page.locator("#grid").bounding_box()
        assert size is not None
        assert size["width"] <= 1280
        assert size["height"] <= 600, "all of it is to be seen at once"
        page.get_by_role("button", name="Next with failures").click()
        expect(page.locator("#shard h3")).to_have_text(f"Shard {failed}: ended, with failures or skips")
        expect(page.locator("#shard .hsq-detail")).to_have_text("expected 1283 tokens, found 4710")
    site.picture("shards", f"samples/run/large#{failed}", lambda page: expect(page.locator("#shard")).to_be_visible())


def test_a_cell_is_the_shard_that_it_says(site: Site) -> None:
    seed_run(site.redis, "r1", 100)
    with site.page("samples/run/r1") as page:
        grid = page.locator("#grid")
        expect(page.locator("#legend li")).to_have_count(5)
        grid.click(position={"x": 5, "y": 5})
        expect(page.locator("#shard h3")).to_contain_text("Shard 0:")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowDown")
        columns = page.evaluate("Math.round(document.getElementById('grid').clientWidth / 24)")
        expect(page.locator("#shard h3")).to_contain_text(f"Shard {columns + 1}:")
        expect(page).to_have_url(f"{site.url}/samples/run/r1#{columns + 1}")
        page.get_by_label("Shard", exact=True).fill("62")
        page.get_by_role("button", name="Show").click()
        expect(page.locator("#shard h3")).to_have_text("Shard 62: worked at")
        expect(page.locator("#shard")).to_contain_text("worker gpu0@seeded")
        grid.hover(position={"x": 29, "y": 5})
        expect(page.locator("#tip")).to_contain_text("shard 1:")


def test_colours_are_those_of_the_legend(site: Site) -> None:
    seed_run(site.redis, "r1", 100, failing=0.0)
    for scheme in ("light", "dark"):
        with site.page("samples/run/r1", scheme=scheme) as page:
            expect(page.locator("#legend li")).to_have_count(5)
            assert pixel(page, 0) == legend(page, "e")
            assert pixel(page, 99) == legend(page, ".")
            page.get_by_role("button", name="waiting").click()
            assert pixel(page, 0) != legend(page, "e"), "what is not asked for steps back"
            assert pixel(page, 99) == legend(page, ".")


def pixel(page: Page, shard: int) -> list[int]:
    return page.evaluate(
        """shard => { const grid = document.getElementById('grid'), columns = Math.round(grid.clientWidth / 24);
        const [x, y] = [shard % columns * 24 + 3, Math.floor(shard / columns) * 24 + 3];
        return [...grid.getContext('2d').getImageData(x, y, 1, 1).data].slice(0, 3); }""",
        shard,
    )  # type: ignore[no-any-return]


def legend(page: Page, letter: str) -> list[int]:
    return page.evaluate(
        "letter => getComputedStyle(document.querySelector(`[data-letter='${letter}']`)).backgroundColor"
        ".match(/\\d+/g).map(Number)",
        letter,
    )  # type: ignore[no-any-return]


def test_figures_go_on_and_a_lost_redis_is_said(site: Site) -> None:
    ledger = seed_run(site.redis, "r1", 10, ended=0.0, failing=0.0)
    with site.page("samples", quiet=False) as page:
        runs = page.locator("#runs li")
        expect(runs).to_contain_text("4 done")
        ledger.claim([9], None)
        seed_run(site.redis, "r2", 10, ended=1.0)
        expect(runs).to_have_count(2)
        expect(runs.last).to_contain_text("100 %")
        site.redis.freeze()
        try:
            expect(page.locator("#live")).to_contain_text("does not answer")
            expect(page.locator("#live")).to_contain_text("These figures are of")
        finally:
            site.redis.thaw()
        expect(page.locator("#live")).to_contain_text("Live")


def test_an_unknown_run_is_said_to_be_one(site: Site) -> None:
    with site.page("samples/run/nobody", quiet=False) as page:
        expect(page.locator("#live")).to_contain_text("Redis knows no run nobody")


def test_troubles_are_named(site: Site) -> None:
    seed_run(site.redis, "r1", 10)
    seed_worker(site.redis, "gpu0@seeded", state="paused", paused="it refuses connections", waits_for="engine")
    for path in ("samples", "samples/run/r1"):
        with site.page(path) as page:
            expect(page.locator("#troubles")).to_contain_text("Engine down")
            expect(page.locator("#troubles")).to_contain_text("it refuses connections")
            expect(page.locator("#workers")).to_contain_text("Paused")
