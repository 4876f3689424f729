"""Redis: reachable, new enough, persistent, never evicting, with memory for the run, and a clock like this host's."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from hsqueue.contracts.errors import HsqueueError
from hsqueue.contracts.fingerprint import RunInfo
from hsqueue.doctor.check import Check, Verdict
from hsqueue.ledger.address import masked
from hsqueue.ledger.connect import redis_errors, require_redis
from hsqueue.wording import plural, readable_bytes

OLDEST = (6, 2)
BYTES_A_SAMPLE, BYTES_A_SHARD = 1, 2048
"""What a run takes in Redis: the ledger, and a message with its envelope for each shard."""
FULL = 0.8
"""Part of the memory that may be in use."""
SKEW = 1.0
"""Seconds that two clocks may differ."""


def check_redis(url: str, run: RunInfo | None) -> Iterator[Check]:
    """run: that it is to hold, if any."""
    try:
        client = require_redis(url)
        with redis_errors(url):
            info: dict[str, Any] = client.info()
            before = time.time()
            seconds, micros = client.time()
            after = time.time()
    except HsqueueError as error:
        yield Check.of("redis", error)
        return
    yield check_version(masked(url), info)
    yield check_persistence(info)
    yield check_eviction(info)
    yield check_memory(info, run)
    yield check_clock(before, seconds + micros / 1e6, after)


def check_version(where: str, info: dict[str, Any]) -> Check:
    version = str(info.get("redis_version", "0"))
    old = tuple(int(part) for part in version.split(".")[:2]) < OLDEST
    return Check.judge(
        "redis", f"{where} answers, version {version}", "bad" if old else None,
        f"Use Redis {'.'.join(map(str, OLDEST))} or newer, or Valkey.",
    )  # fmt: skip


def check_persistence(info: dict[str, Any]) -> Check:
    aof = bool(int(info.get("aof_enabled", 0)))
    return Check.judge(
        "redis", f"appendonly is {'on' if aof else 'off'}", None if aof else "warn",
        "Set appendonly yes; without it a restart costs a rebuild from the volume.",
    )  # fmt: skip


def check_eviction(info: dict[str, Any]) -> Check:
    policy = str(info.get("maxmemory_policy", "noeviction"))
    evicts = policy != "noeviction" and int(info.get("maxmemory", 0)) > 0
    return Check.judge(
        "redis", f"maxmemory-policy is {policy}", "bad" if evicts else None,
        "Set maxmemory-policy noeviction; evicted keys are lost leases and lost messages.",
    )  # fmt: skip


def check_memory(info: dict[str, Any], run: RunInfo | None) -> Check:
    """Used, and what the run adds to it, against maxmemory, or against the host's where there is no such limit."""
    used, limit = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    room = limit or int(info.get("total_system_memory", 0))
    need = run.samples * BYTES_A_SAMPLE + run.shards * BYTES_A_SHARD if run is not None else 0
    text = f"{readable_bytes(used)} in use of {readable_bytes(room)} ({'maxmemory' if limit else 'the host'})"
    if run is not None:
        text += f"; {plural(run.samples, 'sample')} in {plural(run.shards, 'shard')} take up to {readable_bytes(need)}"
    tight: Verdict | None = "warn" if room and used + need > FULL * room else None
    full: Verdict | None = "bad" if limit and used + need > limit else tight
    return Check.judge(
        "redis", text, full,
        "Raise maxmemory, give the host more memory, or hsqueue clean finished runs; a full Redis refuses to record.",
    )  # fmt: skip


def check_clock(before: float, there: float, after: float) -> Check:
    """before, after: this host's time around Redis' answer `there`, Unix seconds."""
    apart = there - (before + after) / 2
    skewed = abs(apart) - (after - before) / 2 > SKEW
    text = "this host's clock is Redis'" if not skewed else (
        f"this host's clock is {abs(apart):.1f} s {'behind' if apart > 0 else 'ahead of'} Redis'"
    )  # fmt: skip
    return Check.judge(
        "clock", text, "warn" if skewed else None,
        "Run an NTP service on both. Leases go by Redis' clock and are safe; times in logs and reports are not.",
    )  # fmt: skip
