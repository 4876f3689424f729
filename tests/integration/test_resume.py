"""Everything killed half way, then the same command: the run ends complete, and nothing done is asked for again."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import psutil

from hsqueue.contracts.rid import parse_rid
from hsqueue.local.engines import dump_root
from tests.support.cli import hsqueue, start
from tests.support.engine import engine, start_engine
from tests.support.prompts import Reference, half_alike, published, token_prompts, wrong_samples
from tests.support.waiting import await_true, lives

COUNT = 400


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """kill -9 of a command and of everything that it started, all at once."""
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    for member in family:
        member.send_signal(signal.SIGKILL)
    process.wait()
    psutil.wait_procs(family, timeout=10)


def wait_for_files(process: subprocess.Popen[bytes], root: Path, count: int, log: Path) -> None:
    await_true(lambda: len(published(root)) >= count, "it stands still", meanwhile=lives(process, log))


def asked_indices(asked: list[tuple[str, int]]) -> list[int]:
    rids = [parse_rid(rid) for rid, _ in asked]
    return [rid.index for rid in rids if rid is not None and rid.run != "probe"]


def test_nothing_done_is_asked_for_again_after_everything_was_killed(tmp_path: Path) -> None:
    prompts = token_prompts(tmp_path / "prompts.jsonl", half_alike(COUNT))
    root, log = tmp_path / "run", tmp_path / "run.log"
    # Slow answers, so that half way lasts long enough to be hit.
    first = start_engine(tmp_path, misbehave={"slow": 0.5})
    arguments = (
        "run",
        prompts,
        "--out",
        root,
        "--engine",
        first.url,
        "--dump-dir",
        first.dump_dir,
        "--shard-size",
        "32",
    )
    process = start(*arguments, log=log)
    wait_for_files(process, root, COUNT // 2, log)
    kill_tree(process)
    first.kill()
    done = published(root)
    assert COUNT // 2 <= len(done) < COUNT
    with engine(tmp_path, "--port", str(first.port)) as second:
        result = hsqueue(*arguments, "--deep")
        asked = asked_indices(second.asked())
    assert result.status == 0, result.text
    assert published(root) == set(range(COUNT))
    assert set(asked).isdisjoint(done), "samples whose files stood were asked for again"
    assert sorted(asked) == sorted(set(range(COUNT)) - done), "every other sample is asked for exactly once"
    assert wrong_samples(root, Reference()) == []


def test_the_embedded_servers_die_with_a_killed_run(tmp_path: Path) -> None:
    prompts = token_prompts(tmp_path / "prompts.jsonl", half_alike(200))
    root, log = tmp_path / "run", tmp_path / "run.log"
    process = start(
        "run", prompts, "--out", root, "--shard-size", "16", "--engine-options", "--misbehave '{\"slow\": 1}'", log=log
    )
    wait_for_files(process, root, 10, log)
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 4, "a Redis, an engine, a worker and its processes"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == []
    # Its dumps stay in memory for as long as nobody resumes it or cleans up.
    assert any(dump_root(root).rglob("req_*"))
    assert hsqueue("clean", root).status == 0
    assert not dump_root(root).exists()


def test_an_interrupted_run_says_how_to_go_on(tmp_path: Path) -> None:
    prompts = token_prompts(tmp_path / "prompts.jsonl", half_alike(200))
    root, log = tmp_path / "run", tmp_path / "run.log"
    process = start(
        "run", prompts, "--out", root, "--shard-size", "16", "--engine-options", "--misbehave '{\"slow\": 1}'", log=log
    )
    wait_for_files(process, root, 10, log)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 3
    assert "the same command goes on from there" in log.read_text()
    assert "Traceback" not in log.read_text()
    result = hsqueue("run", prompts, "--out", root, "--shard-size", "16")
    assert result.status == 0, result.text
