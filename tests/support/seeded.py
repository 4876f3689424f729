"""Ledgers of runs that nobody has to work for: many, large, under way, or full of hostile text."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

from hsqueue.contracts.sample import Ending, GivenUp, Published
from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.records import LedgerInfo
from hsqueue.ledger.signs import give_sign
from tests.support.ledger import granted
from tests.support.redis import RedisServer

QUEUE = "hsq.seeded"
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>'\"{{ 7*7 }}&lt;\u202eevil"


def run_info(run: str, shards: int, size: int = 64) -> LedgerInfo:
    tokens = shards * size * 300
    return LedgerInfo(run, f"/volume/{run}", shards * size, shards, size, QUEUE, 1, tokens, 32768, "/models/target")


def seed_run(
    redis: RedisServer, run: str, shards: int, ended: float = 0.6, failing: float = 0.01, size: int = 64
) -> Ledger:
    """A run of which a part has ended, some shards with failures; some are leased, some queued, the others wait."""
    dice = random.Random(run)
    info = run_info(run, shards, size)
    whole = range(int(shards * ended))
    failed = [
        GivenUp(shard * size, Ending.FAILED, 5, "DumpMismatch", "expected 1283 tokens, found 4710")
        for shard in whole
        if dice.random() < failing
    ]
    bad = {given.index for given in failed}
    ledger = Ledger(redis.client(), redis.url, run)
    ledger.create(info, _published(whole, size, bad), failed, whole)
    leased = range(whole.stop, min(shards, whole.stop + 4))
    for shard in leased:
        ledger.commit(granted(ledger, shard, f"gpu{shard % 2}@seeded:/dumps"), [Published(shard * size, 300, 0, "")])
    ledger.claim(range(leased.stop, min(shards, leased.stop + shards // 5)), None)
    return ledger


def _published(shards: range, size: int, but: set[int]) -> Iterator[Published]:
    return (
        Published(index, 300, 0, "") for index in range(shards.start * size, shards.stop * size) if index not in but
    )


def seed_worker(redis: RedisServer, name: str, **more: object) -> None:
    words = {
        "engine": "http://127.0.0.1:30000", "gpu": "NVIDIA H200", "host": "seeded", "queue": QUEUE, "state": "serving",
        "paused": "", "waits_for": "", "leases": 2, "tokens_per_second": 41233.0, "requests": 64, "tokens": 80000,
        "dump_bytes": 2 << 30, "dump_limit": 8 << 30, "dump_free": 50 << 30, "dump_total": 64 << 30,
        "engine_quiet": 0.0, "volume_quiet": 0.0, "answer_seconds": 0.4, "publish_seconds": 0.02,
    }  # fmt: skip
    give_sign(redis.client(), name, json.dumps({**words, **more}))
