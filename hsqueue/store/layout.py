"""Where everything of a run lies. Names come from indices, never from a user's id.

::

    RUN/run.json                                 fingerprint and totals, written once, last step of planning
    RUN/plan/run.json                            the same file as RUN/run.json
    RUN/plan/plan.json                           totals, sources, rejected lines by reason
    RUN/plan/rejected.jsonl                      every rejected line: file, line, id, reason
    RUN/plan/000/shard-000123.parquet            the samples of one shard
    RUN/plan-<id>.tmp/                           a plan that is being made
    RUN/rejected.jsonl                           the rejected lines of a plan without a usable sample
    RUN/samples/000/000123/000000031488.safetensors   a published sample
    RUN/manifests/000/shard-000123.json          how every sample of one shard ended, written once
    RUN/epochs/000001                            one empty file for each life of the ledger
    RUN/logs/                                    logs of processes that ``hsqueue run`` starts
    RUN/quarantine/                              files that hsqueue verify --repair took away
    RUN/redis/                                   data of the embedded Redis, where one is used

At most a thousand shards share a directory, so that listings stay short on network file systems.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SHARDS_PER_DIRECTORY = 1000
TEMPORARY_SUFFIX = ".tmp"


@dataclass(frozen=True, slots=True)
class RunLayout:
    """Paths of the run in the directory `root`."""

    root: Path

    @property
    def run_json(self) -> Path:
        return self.root / "run.json"

    @property
    def plan(self) -> Path:
        return self.root / "plan"

    @property
    def plan_json(self) -> Path:
        return self.plan / "plan.json"

    @property
    def rejected(self) -> Path:
        return self.plan / "rejected.jsonl"

    @property
    def samples(self) -> Path:
        return self.root / "samples"

    @property
    def manifests(self) -> Path:
        return self.root / "manifests"

    @property
    def epochs(self) -> Path:
        return self.root / "epochs"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def redis(self) -> Path:
        return self.root / "redis"

    @property
    def quarantine(self) -> Path:
        return self.root / "quarantine"

    def plan_shard(self, shard: int) -> Path:
        return plan_shard_path(self.plan, shard)

    def shard_directory(self, shard: int) -> Path:
        return self.samples / f"{shard // SHARDS_PER_DIRECTORY:03d}" / f"{shard:06d}"

    def sample(self, shard: int, index: int) -> Path:
        return self.shard_directory(shard) / f"{index:012d}.safetensors"

    def manifest(self, shard: int) -> Path:
        return self.manifests / f"{shard // SHARDS_PER_DIRECTORY:03d}" / f"shard-{shard:06d}.json"


def plan_shard_path(plan: Path, shard: int) -> Path:
    """A shard's plan under any plan directory, a temporary one included."""
    return plan / f"{shard // SHARDS_PER_DIRECTORY:03d}" / f"shard-{shard:06d}.parquet"
