"""A long run under many faults: ``python -m tests.chaos.soak --help``, or ``make soak``."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hsqueue.ledger.ledger import Ledger
from hsqueue.planning.plan import load_run
from tests.chaos.cluster.cluster import Cluster, Shape, cluster
from tests.chaos.cluster.namespaces import run
from tests.chaos.evidence import linked_twice
from tests.chaos.kinds import kinds
from tests.chaos.mixer import Mixer, Record
from tests.chaos.report import Verdict, to_json, to_markdown
from tests.chaos.schedule import make_schedule
from tests.support.prompts import Reference, wrong_samples
from tests.support.variations import variations

NODES = 2
WORKERS = 2
SETTINGS = {
    "HSQ_LEASE_TTL": "5",
    "HSQ_REQUEUE_GRACE": "5",
    "HSQ_DUMP_TIMEOUT": "5",
    "HSQ_REQUEST_TIMEOUT": "20",
    "HSQ_MAX_IN_FLIGHT": "32",
}
"""Short times, so that faults meet every state of a lease within a run of minutes."""
RETRIES = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """prompts: None for variations of the examples. volume: bytes of the file system that the run lies on."""

    seed: int
    samples: int
    faults: int
    shard_size: int
    volume: int
    prompts: Path | None = None


def soak(plan: Plan, directory: Path, say: Callable[[str], None]) -> tuple[Verdict, list[Record]]:
    """Runs it all in `directory`. Raises AssertionError where the run stands still."""
    prompts = plan.prompts or variations(directory / "prompts.jsonl", plan.samples)
    volume = directory / "volume"
    root = volume / "run"
    shape = Shape(NODES, WORKERS, shared_memory="96m", settings=SETTINGS)
    with cluster(shape, directory / "cluster", volume, loop_device(directory / "volume.img", plan.volume)) as c:
        c.plan(prompts, root, plan.shard_size)
        samples = load_run(root).samples
        c.wait_for_workers()
        began = time.monotonic()
        c.enqueue(root)
        mixer = Mixer(c, root, make_schedule(plan.seed, kinds(NODES), samples, plan.faults), say)
        mixer.run(lambda: has_ended(c, root))
        retried = retry(c, root, mixer)
        seconds = time.monotonic() - began
        say(f"{samples} samples in {seconds:.0f} s; every file is held against the reference now")
        verdict = Verdict(
            seed=plan.seed, total=samples, done=done(c, root), retried=retried,
            wrong=wrong_samples(root, Reference()), twice=linked_twice(n.links for n in c.nodes),
            replaced=mixer.wrong, left=left(c, root), epochs=len(list((root / "epochs").iterdir())), seconds=seconds,
        )  # fmt: skip
    return verdict, mixer.records


def loop_device(image: Path, size: int) -> list[str | Path]:
    """Options of ``mount`` for a file system in a new sparse file of `size` bytes."""
    with image.open("xb") as file:
        file.truncate(size)
    run("mkfs.ext4", "-q", "-F", "-m", "0", image)
    return ["-o", "loop", image]


def has_ended(c: Cluster, root: Path) -> bool:
    counts = c.counts(root)
    return counts is not None and counts.pending == 0


def done(c: Cluster, root: Path) -> int:
    counts = c.counts(root)
    return counts.done if counts else 0


def retry(c: Cluster, root: Path, mixer: Mixer) -> dict[str, int]:
    """Asks for failed samples again, as a user would, until none is left. Returns how many, by error."""
    found: Counter[str] = Counter()
    for _ in range(RETRIES):
        with c.redis.client() as client:
            given_up = Ledger(client, c.redis.url, load_run(root).run).given_up()
        if not given_up:
            break
        found.update(sample.error for sample in given_up.values())
        assert c.hsqueue("retry", root, "--failed").status == 0
        mixer.run(lambda: has_ended(c, root))
    return dict(found)


def left(c: Cluster, root: Path) -> list[str]:
    """Temporary files of the run, and dumps that nobody waits for, once workers have gone and come back."""
    for node in c.nodes:
        for worker in node.workers:
            worker.stop()
        node.workers[0].start()

    def dumps() -> list[Path]:
        return [path for n in c.nodes for path in n.dump_dir.glob("req_hsq.*")]

    c.wait(lambda: all("ready" in n.workers[0].tail().rsplit("gpu0: ", 1)[-1] for n in c.nodes), "no worker starts")
    return [str(path) for path in (*root.glob("samples/*/*/.*"), *root.glob("manifests/*/.*"), *dumps())]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10000), help="default: any")
    parser.add_argument("--samples", type=int, default=37312)
    parser.add_argument("--faults", type=int, default=216)
    parser.add_argument("--shard-size", type=int, default=128)
    parser.add_argument("--prompts", type=Path, help="a file of your own instead of variations of the examples")
    parser.add_argument("--volume-gib", type=int, default=9)
    parser.add_argument("--work", type=Path, help="where to work; default: a directory that goes afterwards")
    parser.add_argument("--out", type=Path, default=Path("soak"), help="for report.json, report.md and logs")
    given = parser.parse_args(arguments)
    plan = Plan(
        given.seed, given.samples, given.faults, given.shard_size, given.volume_gib << 30,
        given.prompts and given.prompts.resolve(),
    )  # fmt: skip
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=given.work, ignore_cleanup_errors=True) as work:
        try:
            verdict, records = soak(plan, Path(work), lambda line: print(time.strftime("%H:%M:%S"), line, flush=True))
        finally:
            for log in Path(work).glob("cluster/*.log"):
                shutil.copy(log, given.out)
    (given.out / "report.json").write_text(to_json(verdict, records))
    (given.out / "report.md").write_text(to_markdown(verdict, records))
    print(to_markdown(verdict, records))
    return 0 if verdict.is_right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
