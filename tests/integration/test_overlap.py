"""The engine does not run dry while one shard ends and the next begins."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

from hsworker.budget import Budget
from hsworker.turns import Limits
from tests.support.cli import start
from tests.support.engine import engine
from tests.support.prompts import published, token_prompts
from tests.support.waiting import await_true, lives

COUNT, SHARD, IN_FLIGHT = 240, 24, 8


def in_flight_while(process: subprocess.Popen[bytes], budget: Path, root: Path, log: Path) -> list[int]:
    """Requests on the engine at every look, from the first file until the last shard's tail begins."""
    await_true(lambda: budget.exists() and published(root), "it stands still", meanwhile=lives(process, log))
    shared = Budget(budget, Limits(IN_FLIGHT, 1 << 20, 1 << 40))
    seen = []
    while process.poll() is None and len(published(root)) < COUNT - 2 * IN_FLIGHT:
        seen.append(sum(slot.requests for slot in shared.slots()))
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.005)
    return seen


def test_requests_stay_in_flight_across_the_ends_of_shards(tmp_path: Path) -> None:
    prompts = token_prompts(tmp_path / "prompts.jsonl", [20 + k % 60 for k in range(COUNT)])
    root, log = tmp_path / "run", tmp_path / "run.log"
    with engine(tmp_path, misbehave={"slow": 0.4}) as server:
        process = start(
            "run", prompts, "--out", root, "--engine", server.url, "--dump-dir", server.dump_dir,
            "--shard-size", str(SHARD), log=log, env={"HSQ_MAX_IN_FLIGHT": str(IN_FLIGHT)},
        )  # fmt: skip
        seen = in_flight_while(process, server.dump_dir / ".hsqueue" / "budget", root, log)
        assert process.wait(120) == 0, log.read_text()
    assert len(seen) > 100
    print(f"in flight at {len(seen)} looks over {COUNT // SHARD} shards: least {min(seen)}, most {max(seen)}")
    assert max(seen) == IN_FLIGHT, "the limit is used and kept"
    assert min(seen) > 0, "the engine ran dry"
    full = sum(count == IN_FLIGHT for count in seen) / len(seen)
    assert full > 0.5, f"only {full:.0%} of the looks found the engine full"
