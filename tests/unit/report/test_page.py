"""The page is parsed as a browser would, and its figures compared with where they come from."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hsqueue.contracts.meters import STAGES
from hsqueue.contracts.sample import Ending, GivenUp, Published
from hsqueue.contracts.work import Work
from hsqueue.monitoring.pace import Pace
from hsqueue.monitoring.snapshot import from_volume
from hsqueue.monitoring.troubles import Trouble
from hsqueue.report.gather import Report, gather
from hsqueue.report.page import headline, page
from hsqueue.report.tally import Example
from tests.support.page import read_page
from tests.support.volume import TARGET, Volume, make_volume

LENGTHS = (5, 9, 12, 3, 7, 7, 2, 8)
EVIL = '</style><script>alert(1)</script><img src=x onerror="a()">\' "\x00\x1b[31m\u202e\ud800'


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    """Two shards of four, one sample skipped and one failed, an engine's death and a worker's on the way."""
    made = make_volume(tmp_path / "run", LENGTHS, 4)
    work = Work().opened("gpu0@a", 1e9).closed(1e9 + 60, 2, 14, dict.fromkeys(STAGES, 1.5), {"DumpMissing": 2}, True)
    work = work.opened("gpu1@a", 1e9 + 70)
    work = work.opened("gpu0@a", 1e9 + 80).closed(1e9 + 100, 1, 12, dict.fromkeys(STAGES, 0.5), {}, False)
    made.write_manifest(0, made.publish(0, 1, 2), [GivenUp(3, Ending.SKIPPED, 1, "SampleTooLong", EVIL)], work=work)
    other = Work().opened("gpu1@a", 1e9 + 50).closed(1e9 + 90, 3, 17, dict.fromkeys(STAGES, 1.0), {}, False)
    failed = GivenUp(5, Ending.FAILED, 5, "DumpMissing", "no dump")
    made.write_manifest(1, made.publish(4, 6, 7), [failed], work=other)
    for epoch in ("000001", "000002", "000003"):
        made.layout.epochs.mkdir(exist_ok=True)
        (made.layout.epochs / epoch).touch()
    return made


@pytest.fixture
def report(volume: Volume) -> Report:
    return gather(volume.layout, volume.info, None)


def test_figures_are_those_of_the_manifests(volume: Volume, report: Report) -> None:
    figures = read_page(page(report)).figures
    done = [n for index, n in enumerate(LENGTHS) if index not in (3, 5)]
    files = sum(volume.path(index).stat().st_size for index in (0, 1, 2, 4, 6, 7))
    assert figures.items() >= {
        "total": 8, "done": 6, "skipped": 1, "failed": 1, "pending": 0, "tokens": sum(done),
        "bytes": sum(done) * TARGET.bytes_per_token, "shards": 2, "shards_ended": 2, "file_bytes": files,
        "retries": 2, "retries DumpMissing": 2, "lost": 1, "engine_downs": 1, "rebuilds": 2, "median_tokens": 7,
        "skipped SampleTooLong": 1, "failed DumpMissing": 1, **{f"seconds {stage}": 3.0 for stage in STAGES},
        "rate gpu0@a": round(26 / 80, 1), "rate gpu1@a": round(17 / 40, 1), "busy": 100.0,
    }.items()  # fmt: skip


def test_the_page_stands_alone(report: Report) -> None:
    """No script, nothing that loads anything, and a policy that would refuse it."""
    text = page(report)
    read = read_page(text)
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form", "video", "audio"} & set(read.tags)
    for tag, name, value in read.attributes:
        assert name not in ("src", "href", "style", "action", "srcset", "data"), (tag, name)
        assert not name.startswith("on"), (tag, name)
        assert "://" not in value, (tag, name, value)
    assert re.findall(r"url\(|@import|https?:", text) == []
    assert ("meta", "content", "default-src 'none'; style-src 'unsafe-inline'") in read.attributes


def _names(report: Report) -> Report:
    tally = report.tally
    tally.retries[EVIL] = 3
    tally.given_up["failed", EVIL] = 2
    tally.examples["failed", EVIL] = Example(7, EVIL)
    tally.spans = [replace(span, worker=EVIL) for span in tally.spans]
    return report


def _run(report: Report) -> Report:
    fingerprint = replace(report.info.fingerprint, model=EVIL, tokenizer=EVIL, dataset=EVIL, ids=EVIL)
    return replace(report, info=replace(report.info, run=EVIL, fingerprint=fingerprint))


def _rejected(report: Report) -> Report:
    return replace(report, rejected={EVIL: 4})


@pytest.mark.parametrize("make", [_names, _run, _rejected])
def test_what_others_wrote_stays_text(report: Report, make: Callable[[Report], Report]) -> None:
    plain, text = page(report), page(make(report))
    read = read_page(text)
    assert "script" not in read.tags
    assert "img" not in read.tags
    assert "<script>alert(1)</script>" in read.text
    assert not re.search("[\x00\x1b\u202e\ud800]", text)
    assert text.count("<style>") == plain.count("<style>") == 1
    text.encode()


def test_a_run_without_anything_done_has_a_page(tmp_path: Path) -> None:
    volume = make_volume(tmp_path / "run", LENGTHS, 4)
    report = gather(volume.layout, volume.info, None)
    figures = read_page(page(report)).figures
    assert (figures["done"], figures["pending"], figures["shards_ended"]) == (0, 8, 0)
    assert headline(report) == "0.0% of 8 samples have ended"


def test_a_run_under_way_counts_the_files_of_open_shards(tmp_path: Path) -> None:
    volume = make_volume(tmp_path / "run", LENGTHS, 4)
    volume.finish_shard(0)
    volume.publish(6)
    figures = read_page(page(gather(volume.layout, volume.info, None))).figures
    assert (figures["done"], figures["pending"], figures["shards_ended"]) == (5, 3, 1)


@pytest.mark.parametrize(
    ("given_up", "words"),
    [
        ([], "Complete: 8 samples"),
        ([GivenUp(3, Ending.SKIPPED, 1, "SampleTooLong", "")], "Complete: 7 samples, 1 skipped"),
        ([GivenUp(3, Ending.FAILED, 1, "DumpMissing", "")], "All 8 samples have ended, 1 of them failed"),
    ],
)
def test_the_headline_is_plain(tmp_path: Path, given_up: list[GivenUp], words: str) -> None:
    volume = make_volume(tmp_path / "run", LENGTHS, 4)
    volume.finish_shard(0, given_up)
    volume.finish_shard(1)
    assert headline(gather(volume.layout, volume.info, None)) == words


def test_almost_all_is_not_all(report: Report) -> None:
    totals = replace(report.totals, total=10**6, done=10**6 - 1, skipped=0, failed=0, pending=1)
    assert headline(replace(report, totals=totals)) == "99.9% of 1,000,000 samples have ended"


def test_many_kinds_and_workers_stay_a_page(volume: Volume, report: Report) -> None:
    """Names of errors and workers come from files, so there may be any number of them."""
    for number in range(3000):
        report.tally.retries[f"Error{number}"] = number + 1
        report.tally.given_up["failed", f"Error{number}"] = 1
        report.tally.examples["failed", f"Error{number}"] = Example(number, "x" * 5000)
    assert len(page(report)) < 300_000
    assert "2,961 rarer kinds not shown" in read_page(page(report)).text


def test_a_damaged_account_of_the_plan_hides_nothing_else(volume: Volume) -> None:
    volume.layout.plan_json.write_text('{"rejected": []}')
    assert read_page(page(gather(volume.layout, volume.info, None))).figures["done"] == 6


def test_a_digest_of_any_size_is_a_published_sample(tmp_path: Path) -> None:
    """Large files are counted in large units."""
    volume = make_volume(tmp_path / "run", (5, 9), 2)
    volume.write_manifest(0, [Published(0, 5, 3 << 40, ""), Published(1, 9, 1 << 10, "")])
    assert "3.00 TiB" in read_page(page(gather(volume.layout, volume.info, None))).text


def test_what_is_wrong_now_and_the_time_left_are_on_the_page_of_a_run_under_way(volume: Volume, report: Report) -> None:
    present = replace(
        from_volume(volume.layout, volume.info), pending=2, pace=Pace(1234.5, 1000.0, 3600.0, 1e9, 0.0),
        troubles=(Trouble("worker_gone", "gpu1@a", f"worker gpu1@a is gone {EVIL}"),),
    )  # fmt: skip
    totals = replace(report.totals, pending=2, done=4)
    read = read_page(page(replace(report, present=present, totals=totals)))
    assert "worker gpu1@a is gone </style><script>alert(1)</script>" in read.text
    assert (read.figures["recent"], read.figures["seconds_left"]) == (1234.5, 3600.0)
    assert "script" not in read.tags
