"""A run of two thousand samples by two workers, watched in the browser from its first shard to its last failure."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from hsqueue.ledger.ledger import Ledger
from hsqueue.monitoring.snapshot import Snapshot, by_redis
from hsqueue.planning.plan import load_run
from tests.browser.conftest import Site
from tests.support.cli import start
from tests.support.prompts import half_alike, token_prompts

COUNT, SHARD = 2000, 50
TROUBLE = {"nan": 0.01, "slow": 4.0}
"""About twenty samples fail, and answers take their time, so that there is a run to watch."""
ENVIRONMENT = {"HSQ_MAX_ATTEMPTS": "1", "HSQ_MAX_IN_FLIGHT": "32"}
END_SECONDS = 240

pytestmark = pytest.mark.timeout(600)


class Run:
    """Under way. id: the run's. root: where it lies."""

    def __init__(self, site: Site, root: Path, process: subprocess.Popen[bytes]) -> None:
        self.site, self.root, self.process = site, root, process
        self.id = ""

    def await_planned(self) -> None:
        with self.site.page("samples") as page:
            link = page.locator("#runs a")
            expect(link).to_have_count(1)
            self.id = link.inner_text()

    def snapshot(self) -> Snapshot:
        info = load_run(self.root)
        found = by_redis(Ledger(self.site.redis.client(), self.site.redis.url, info.run))
        assert found is not None
        return found


@pytest.fixture(scope="module")
def run(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    place = tmp_path_factory.mktemp("run")
    prompts = token_prompts(place / "prompts.jsonl", half_alike(COUNT))
    arguments = (
        "run", prompts, "--out", place / "run", "--engines", "2", "--shard-size", str(SHARD),
        "--engine-options", f"--misbehave {shlex.quote(json.dumps(TROUBLE))}",
    )  # fmt: skip
    process = start(*arguments, log=place / "run.log", env={**ENVIRONMENT, "HSQ_REDIS_URL": site.redis.url})
    found = Run(site, place / "run", process)
    try:
        found.await_planned()
        yield found
    finally:
        process.terminate()
        process.wait(60)


def number(locator: Locator) -> int:
    """The first number of a text."""
    found = re.search(r"[\d,]+", locator.inner_text())
    assert found
    return int(found[0].replace(",", ""))


def grows(page: Page, selector: str) -> None:
    """The first number in `selector` becomes another one, larger, with nothing reloaded."""
    before = number(page.locator(selector))
    page.wait_for_function(
        "([selector, before]) => Number(document.querySelector(selector)?.textContent.match(/[\\d,]+/)?.[0]"
        ".replaceAll(',', '')) > before",
        arg=[selector, before],
    )


def test_the_samples_tab_lives(run: Run) -> None:
    with run.site.page("samples") as page:
        expect(page.locator("#workers li")).to_have_count(2)
        expect(page.locator("#workers")).to_contain_text("gpu0@")
        expect(page.locator("#workers")).to_contain_text("http://127.0.0.1:")
        expect(page.locator("#workers")).to_contain_text("shard")
        page.wait_for_function("document.querySelector('.hsq-runs .hsq-bar span').style.width > '0%'")
        grows(page, "#runs [data-part=endings]")
        grows(page, "#figures > :nth-child(1) [data-part=more]")
        rates = page.locator("#workers [data-part=rate]")
        expect(rates.first).not_to_have_text("0")
        expect(page.locator("#runs [data-part=left]")).to_contain_text("left")


def test_tasks_progress_in_flowers_list(run: Run) -> None:
    with run.site.page("tasks?state=STARTED") as page:
        row = page.locator("#tasks-table tbody tr", has_text="samples,").filter(has_text="tokens/s").first
        expect(row).to_contain_text(f"{run.id}, shard ")
        expect(row).to_contain_text(re.compile(rf"\d+/{SHARD} samples, [\d,]+ tokens/s"))
        expect(row).to_contain_text("http://127.0.0.1:")
        expect(row).to_contain_text("gpu")
        uuid = row.locator("a[href*='/task/']").get_attribute("href")
        cell = f"#tasks-table tr:has(a[href='{uuid}']) td:nth-child(4)"
        before = page.locator(cell).inner_text()
        page.wait_for_function(
            "([cell, before]) => document.querySelector(cell)?.textContent !== before", arg=[cell, before]
        )


def test_the_page_of_the_run_lives(run: Run) -> None:
    with run.site.page("samples") as page:
        page.locator("#runs a").click()
        expect(page.locator("h1")).to_have_text(run.id)
        expect(page.locator("#about")).to_contain_text(str(run.root))
        expect(page.locator("#legend [data-key=w] b")).not_to_have_text("0")
        grows(page, "#figures > :nth-child(1) [data-part=more]")
        grows(page, "#legend [data-key=e] b")


def test_pictures_of_a_run(run: Run) -> None:
    """Under way, unless the machine is so slow that it ends meanwhile."""
    run.site.picture("samples", "samples", lambda page: expect(page.locator("#figures div")).to_have_count(5))
    run.site.picture("run", f"samples/run/{run.id}", lambda page: expect(page.locator("#legend li")).to_have_count(5))
    run.site.picture("tasks", "tasks", lambda page: expect(page.locator("#tasks-table")).to_contain_text(f"/{SHARD} "))


def test_at_the_end_the_figures_are_the_ledgers_and_a_failed_shard_says_why(run: Run) -> None:
    assert run.process.wait(END_SECONDS) == 3, "some samples have failed"
    found = run.snapshot()
    assert found.failed > 0
    assert found.pending == 0
    with run.site.page(f"samples/run/{run.id}") as page:
        figures = page.locator("#figures")
        expect(figures).to_contain_text("100 %")
        expect(figures).to_contain_text(f"{COUNT:,} of {COUNT:,}")
        expect(figures).to_contain_text(f"{found.tokens:,} tokens")
        expect(figures.locator("div", has_text="Failed").locator("[data-part=value]")).to_have_text(str(found.failed))
        page.get_by_role("button", name="Next with failures").click()
        expect(page.locator("#shard h3")).to_contain_text("ended, with failures or skips")
        expect(page.locator("#shard .hsq-failures li").first).to_contain_text("StatesNotFinite")
        expect(page.locator("#shard .hsq-detail").first).not_to_be_empty()
    with run.site.page("samples") as page:
        endings = page.locator("#runs [data-part=endings]")
        expect(endings).to_have_text(f"{found.done:,} done · {found.failed} failed")
        expect(page.locator("#failures li")).to_have_count(min(20, found.failed))
    run.site.picture(
        "ended", f"samples/run/{run.id}", lambda page: expect(page.locator("#failures li").first).to_be_visible()
    )


def test_a_shard_is_found_by_its_number(run: Run) -> None:
    run.process.wait(END_SECONDS)
    with run.site.page("tasks") as page:
        page.get_by_role("searchbox").fill(f"kwargs:shard=7 kwargs:run={run.id}")
        rows = page.locator("#tasks-table tbody tr")
        expect(rows).to_have_count(1)
        expect(rows).to_contain_text(f"{run.id}, shard 7")


def test_flowers_own_list_finds_the_failed_shard_with_its_reason(run: Run) -> None:
    run.process.wait(END_SECONDS)
    with run.site.page("tasks") as page:
        page.get_by_role("button", name="Failed").click()
        row = page.locator("#tasks-table tbody tr").first
        expect(row).to_contain_text("FAILURE")
        expect(row).to_contain_text(re.compile(r"\d failed: \d+ StatesNotFinite; sample \d+: "))
        row.locator("a[href*='/task/']").click()
        expect(page.locator("#task-page")).to_contain_text("StatesNotFinite")
        expect(page.locator("#task-page")).to_contain_text(f"{run.id}, shard ")
    run.site.picture(
        "failed",
        "tasks?state=FAILURE",
        lambda page: expect(page.locator("#tasks-table")).to_contain_text("StatesNotFinite"),
    )
