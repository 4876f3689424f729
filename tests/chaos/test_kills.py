"""kill -9 of every process of a local run in turn, again and again; the run ends complete and right."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.support.cli import hsqueue, start
from tests.support.prompts import Reference, half_alike, published, token_prompts, wrong_samples
from tests.support.waiting import await_true, lives

COUNT = 400
KILLS = ("worker", "child", "redis", "worker", "child", "engine", "redis", "child", "worker")


def _family(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def _named(process: subprocess.Popen[bytes], word: str) -> list[psutil.Process]:
    found = []
    for member in _family(process):
        with contextlib.suppress(psutil.Error):
            if any(word in part for part in member.cmdline()):
                found.append(member)
    return found


def _workers(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The workers' main processes; what they forked has the same command line."""
    workers = _named(process, "worker")
    return [w for w in workers if w.ppid() == process.pid]


def _children(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return [child for worker in _workers(process) for child in worker.children()]


VICTIMS: dict[str, Callable[[subprocess.Popen[bytes]], list[psutil.Process]]] = {
    "worker": _workers,
    "child": _children,
    "engine": lambda process: _named(process, "hsengine"),
    "redis": lambda process: _named(process, "redis.conf"),
}


@pytest.mark.timeout(600)
def test_a_run_survives_the_death_of_each_of_its_processes(tmp_path: Path) -> None:
    dice = random.Random(5)
    prompts = token_prompts(tmp_path / "prompts.jsonl", half_alike(COUNT))
    root, log = tmp_path / "run", tmp_path / "run.log"
    process = start(
        "run", prompts, "--out", root, "--engines", "2", "--shard-size", "20", "--deep",
        "--engine-options", '--misbehave \'{"slow": 1.2}\'', log=log, env={"HSQ_MAX_IN_FLIGHT": "8"},
    )  # fmt: skip
    killed = []
    for number, kind in enumerate(KILLS):
        count = (number + 1) * COUNT // (len(KILLS) + 2)
        await_true(lambda count=count: len(published(root)) >= count, "it stands still", meanwhile=lives(process, log))
        victims = VICTIMS[kind](process)
        if victims:
            victim = dice.choice(victims)
            victim.send_signal(signal.SIGKILL)
            killed.append(kind)
    status = process.wait(400)
    assert len(killed) >= len(KILLS) - 2, killed
    if status == 3:
        # An engine that is killed while one sample alone is in flight leaves that sample as failed, to be retried.
        assert hsqueue("retry", root, "--failed").status == 0
        again = hsqueue("run", prompts, "--out", root, "--engines", "2", "--shard-size", "20", "--deep")
        assert again.status == 0, again.text
    else:
        assert status == 0, log.read_text()
    assert published(root) == set(range(COUNT))
    assert wrong_samples(root, Reference()) == []
    assert list(root.glob("samples/*/*/.*")) == [], "no temporary file is left"
