"""One plan a directory, whoever else plans it and wherever a planner dies."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from hsqueue.contracts.errors import RunDamaged, RunNotFound
from hsqueue.contracts.fingerprint import Fingerprint, RunInfo
from hsqueue.planning.commit import (
    RUN_FILE,
    load_run,
    publish,
    remove_leftovers,
    settle,
    staging_directory,
    write_durably,
)
from hsqueue.store.layout import RunLayout


def info(run: str) -> RunInfo:
    made_for = Fingerprint("m", "w", (2,), "post", "bfloat16", 8, 9, "t", "c", "d", 10, 0, 4)
    return RunInfo(run, 1.5, 1, 1, 3, made_for)


def stage(root: Path, run: str) -> Path:
    """What a planner has written when it is about to publish."""
    staging = root / f"plan-{run}.tmp"
    (staging / "000").mkdir(parents=True)
    (staging / "000" / "shard").write_text(run, encoding="utf-8")
    write_durably(staging / RUN_FILE, info(run).to_json())
    return staging


def require_whole(root: Path, run: str) -> None:
    """run.json and the plan are those of `run`."""
    assert load_run(root) == info(run)
    assert (RunLayout(root).plan / "000" / "shard").read_text(encoding="utf-8") == run


def test_a_plan_and_its_run_become_visible_together(tmp_path: Path) -> None:
    assert settle(tmp_path) is None
    assert publish(stage(tmp_path, "a"), tmp_path) == info("a")
    require_whole(tmp_path, "a")
    assert settle(tmp_path) == info("a")


def test_the_second_planner_takes_the_plan_of_the_first(tmp_path: Path) -> None:
    first, second = stage(tmp_path, "a"), stage(tmp_path, "b")
    assert publish(second, tmp_path) == info("b")
    assert publish(first, tmp_path) == info("b")
    require_whole(tmp_path, "b")


def test_a_planner_whose_directory_was_taken_for_a_leftover_takes_the_winners_plan(tmp_path: Path) -> None:
    first, second = stage(tmp_path, "a"), stage(tmp_path, "b")
    publish(second, tmp_path)
    remove_leftovers(tmp_path)
    assert not first.exists()
    assert publish(first, tmp_path) == info("b")


def test_a_planner_that_died_between_the_two_steps_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", die)
        with pytest.raises(KeyboardInterrupt):
            publish(stage(tmp_path, "a"), tmp_path)
    assert not RunLayout(tmp_path).run_json.exists()
    # Another planner that had begun meanwhile must not put its own run beside the plan that stands.
    assert publish(stage(tmp_path, "b"), tmp_path) == info("a")
    require_whole(tmp_path, "a")


def test_everything_is_on_disk_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of events that a power cut must not be able to turn around."""
    events: list[str] = []
    real_sync, real_rename, real_link = os.fsync, Path.rename, os.link

    def sync(descriptor: int) -> None:
        events.append("sync " + str(Path(f"/proc/self/fd/{descriptor}").readlink().relative_to(tmp_path)))
        real_sync(descriptor)

    def rename(self: Path, to: Path) -> Path:
        events.append("rename")
        return real_rename(self, to)

    def link(source: Path, to: Path) -> None:
        events.append("link")
        real_link(source, to)

    staging = stage(tmp_path, "a")
    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "rename", rename)
    monkeypatch.setattr(os, "link", link)
    publish(staging, tmp_path)
    assert sorted(events[:2]) == ["sync plan-a.tmp", "sync plan-a.tmp/000"]
    assert events[2:] == ["rename", "sync .", "link", "sync ."]


def test_a_rename_that_fails_for_another_reason_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, to: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(OSError, match="No space"):
        publish(stage(tmp_path, "a"), tmp_path)
    assert settle(tmp_path) is None


def test_a_plan_that_vanishes_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        publish(tmp_path / "plan-gone.tmp", tmp_path)


def test_an_empty_plan_directory_is_no_plan(tmp_path: Path) -> None:
    RunLayout(tmp_path).plan.mkdir()
    assert settle(tmp_path) is None
    publish(stage(tmp_path, "a"), tmp_path)
    require_whole(tmp_path, "a")


def test_a_plan_that_no_planner_left_is_refused(tmp_path: Path) -> None:
    RunLayout(tmp_path).plan.mkdir()
    (RunLayout(tmp_path).plan / "notes.txt").touch()
    with pytest.raises(RunDamaged, match=r"exists without a run\.json\. Remove"):
        settle(tmp_path)


def test_a_staging_directory_goes_with_its_planner(tmp_path: Path) -> None:
    with staging_directory(tmp_path / "new" / "run", "a") as staging:
        (staging / "half").touch()
    assert not staging.exists()
    assert (tmp_path / "new" / "run").is_dir()


def test_load_run_names_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(RunNotFound, match=r"hsqueue plan PROMPTS --out"):
        load_run(tmp_path)
    with pytest.raises(RunNotFound):
        load_run(tmp_path / "missing")
    RunLayout(tmp_path).run_json.write_text(info("a").to_json(), encoding="utf-8")
    with pytest.raises(RunDamaged, match="plan is missing"):
        load_run(tmp_path)
    RunLayout(tmp_path).run_json.write_text("{", encoding="utf-8")
    with pytest.raises(RunDamaged, match=r"run\.json is damaged"):
        load_run(tmp_path)
