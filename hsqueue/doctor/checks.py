"""One function a subject. Each looks, and says what it found; none raises for what it finds."""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hsqueue.contracts.errors import HsqueueError
from hsqueue.ledger.address import masked
from hsqueue.ledger.connect import redis_errors, require_redis
from hsqueue.planning.plan import load_run
from hsqueue.store.files import commit_link, fsync_directory, volume_error

OLDEST_REDIS = (6, 2)
PROBE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Check:
    """subject: what was looked at. text: what was found. do: what to change, where anything has to be."""

    subject: str
    verdict: Literal["ok", "warn", "bad"]
    text: str
    do: str = ""

    @classmethod
    def of(cls, subject: str, error: HsqueueError) -> Check:
        return cls(subject, "bad", str(error))


def check_redis(url: str) -> Iterator[Check]:
    """Reachable, new enough, persistent, and never evicting."""
    try:
        client = require_redis(url)
        with redis_errors(url):
            info: dict[str, Any] = client.info()
    except HsqueueError as error:
        yield Check.of("redis", error)
        return
    version = str(info.get("redis_version", "0"))
    new = tuple(int(part) for part in version.split(".")[:2]) >= OLDEST_REDIS
    yield Check(
        "redis", "ok" if new else "bad", f"{masked(url)} answers, version {version}",
        "" if new else f"Use Redis {'.'.join(map(str, OLDEST_REDIS))} or newer, or Valkey.",
    )  # fmt: skip
    aof = bool(int(info.get("aof_enabled", 0)))
    yield Check(
        "redis", "ok" if aof else "warn", f"appendonly is {'on' if aof else 'off'}",
        "" if aof else "Set appendonly yes; without it a restart costs a rebuild from the volume.",
    )  # fmt: skip
    policy = str(info.get("maxmemory_policy", "noeviction"))
    keeps = policy == "noeviction" or not int(info.get("maxmemory", 0))
    yield Check(
        "redis", "ok" if keeps else "bad", f"maxmemory-policy is {policy}",
        "" if keeps else "Set maxmemory-policy noeviction; evicted keys are lost leases and lost messages.",
    )  # fmt: skip


def check_volume(directory: Path) -> Iterator[Check]:
    """Writable, with link(2) and fsync, with space; and how fast one file goes there."""
    target = directory / f".hsqueue-doctor-{uuid.uuid4().hex[:8]}"
    temporary = target.with_suffix(".tmp")
    try:
        began = time.monotonic()
        with temporary.open("xb") as file:
            file.write(os.urandom(PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
        seconds = time.monotonic() - began
        linked = commit_link(temporary, target)
        fsync_directory(directory)
    except OSError as error:
        yield Check.of("volume", volume_error(error, target))
        return
    finally:
        for path in (temporary, target):
            if os.access(directory, os.W_OK):
                path.unlink(missing_ok=True)
    yield Check("volume", "ok" if linked else "bad", f"{directory} takes files, link and fsync")
    yield Check("volume", "ok", f"one writer: {PROBE_BYTES / seconds / 1e6:,.0f} MB/s with fsync, on one small file")
    free = shutil.disk_usage(directory).free
    low = free < 50 << 30
    yield Check(
        "volume", "warn" if low else "ok", f"{free / 2**30:,.0f} GiB free",
        "States take 32 KiB a token for a hidden size of 4096 in bfloat16; make sure the run fits." if low else "",
    )  # fmt: skip


def check_dump_directory(directory: Path, wanted: int) -> Iterator[Check]:
    """There, writable, in memory, and large enough. wanted: bytes that a worker may have waiting."""
    if not directory.is_dir():
        yield Check(
            "dumps", "bad", f"{directory} does not exist here",
            "Start the engine with HSQ_DUMP_DIR set to it; in containers, share it between engine and worker.",
        )  # fmt: skip
        return
    writable = os.access(directory, os.W_OK)
    yield Check(
        "dumps", "ok" if writable else "bad", f"{directory} is {'' if writable else 'not '}writable",
        "" if writable else "Run the worker as the engine's user; it removes dumps.",
    )  # fmt: skip
    free = shutil.disk_usage(directory).free
    yield Check(
        "dumps", "ok" if free >= wanted else "warn",
        f"{free / 2**30:,.1f} GiB free, HSQ_MAX_DUMP_BYTES is {wanted / 2**30:,.1f} GiB",
        "" if free >= wanted else "Lower HSQ_MAX_DUMP_BYTES, or enlarge /dev/shm (shm_size in Docker).",
    )  # fmt: skip


def check_engine(url: str, dump_dir: Path, run: Path | None) -> Iterator[Check]:
    """Answers, captures into `dump_dir`, and fits `run`."""
    from hsworker import pinning
    from hsworker.engine import EngineClient

    client = EngineClient(url)
    try:
        info = client.server_info()
        card = pinning.require_card(client, dump_dir)
        yield Check("engine", "ok", f"{card.server} at {url} serves {card.model}")
        pinning.check_engine(client, card)
        pinning.probe(client, dump_dir, card)
        yield Check("engine", "ok", f"a probe's dump came through {dump_dir} and matched")
        yield Check(
            "engine", "ok",
            f"layers {list(card.layers)} (asked {list(card.layers_asked)}, held {list(card.layers_held)}), "
            f"norm {card.norm}, {card.dtype}, up to {card.context_length} tokens",
        )  # fmt: skip
        if info.get("speculative_algorithm"):
            yield Check(
                "engine",
                "bad",
                "speculative decoding is on, which mixes states",
                "Start it without --speculative-algorithm.",
            )
        if run is not None:
            different = load_run(run).fingerprint.target.differences(card.target)
            listed = "; ".join(f"{name}: the run needs {a}, the engine is {b}" for name, (a, b) in different.items())
            yield Check("engine", "bad" if different else "ok", listed or f"it fits {run}")
    except HsqueueError as error:
        yield Check.of("engine", error)
