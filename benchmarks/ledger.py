"""What the ledger costs at scale, in a Redis of its own: memory, commits, look-ups, the reaper's round, a resume.

    python benchmarks/ledger.py [--samples 1000000 100000000] [--open 1000000] [--resume 10000000]
        [--directory DIR] [--json FILE]

Commits, look-ups and rounds are calls of the worker's own code over a socket; what they cost Redis is what its own
statistics say of its scripts. Memory is what Redis says it uses with the run's ledger, less without it. A lost shard is
found and claimed among many that are queued. The resume is `reconcile`, which `hsqueue run` and `enqueue` begin with,
on a run whose files and manifests stand on disk and of which all but one shard has ended. Its files are hard links to
few, since a resume looks at names, sizes and times only.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import redis
from arguments import parser
from machine import write_result
from queued import redis_in

from hsqueue.contracts.fingerprint import Fingerprint, RunInfo
from hsqueue.contracts.sample import Published
from hsqueue.ledger.connect import connect
from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.rebuild import rebuild, reconcile
from hsqueue.ledger.records import Lease, LedgerInfo
from hsqueue.store.layout import RunLayout
from hsqueue.store.manifest import make_manifest, write_manifest

SHARD = 512
COMMIT = 256
TOKENS = 700
LINKS = 60_000
"""Hard links to one file; ext4 allows 65,000."""
LOOKS = 2000
LOSSES = 200


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--samples", type=int, nargs="*", default=[1_000_000, 100_000_000])
    made.add_argument("--resume", type=int, default=10_000_000, help="samples; 0 leaves the resume out")
    made.add_argument("--open", type=int, default=1_000_000, help="shards among which one is lost; 0 leaves it out")
    made.add_argument("--directory", type=Path, default=None, help="where the run of the resume goes")
    options = made.parse_args()
    with tempfile.TemporaryDirectory() as temporary, redis_in(Path(temporary) / "redis") as server:
        client = connect(server.url)
        figures: dict[str, Any] = {str(n): measure(client, server.url, n) for n in options.samples}
        if options.open:
            figures["lost"] = lost_shard(client, server.url, options.open)
        if options.resume:
            with tempfile.TemporaryDirectory(dir=options.directory) as volume:
                figures["resume"] = resume(client, server.url, Path(volume) / "run", options.resume)
    print(json.dumps(figures, indent=1))
    if options.json:
        write_result(options.json, figures, options.directory)


def measure(client: redis.Redis, url: str, samples: int) -> dict[str, float]:
    """A ledger of `samples`, committed in part as workers commit, and filled for the rest."""
    client.flushall()
    empty = used(client)
    shards = -(-samples // SHARD)
    ledger = Ledger(client, url, "bench")
    info = LedgerInfo("bench", "/bench", samples, shards, SHARD, "hsq.bench", 1, samples * TOKENS, 1, "bench")
    ledger.create(info, (), (), ())
    client.config_resetstat()
    rate = commits(ledger, min(shards, 2000))
    redis_share = script_seconds(client) * 1e6 / (min(shards, 2000) * SHARD)
    # The rest is set as a rebuild would have it: the same keys, without a million calls.
    client.setrange(ledger.keys.done, 0, b"\xff" * (samples // 8))
    client.setrange(ledger.keys.ended, 0, b"\xff" * (shards // 8))
    ledger.reopen(shards - 1)
    dice = random.Random(0)
    return {
        "bytes_a_sample": round((used(client) - empty) / samples, 4),
        "committed_samples_per_s": round(rate),
        "redis_us_a_committed_sample": round(redis_share, 2),
        "lookup_ms_median": median_ms(lambda: ledger.is_done(dice.randrange(samples)), LOOKS),
        "shard_lookup_ms_median": median_ms(lambda: ledger.done_in(shard_of(dice.randrange(shards), samples)), LOOKS),
        "reaper_round_ms_median": median_ms(lambda: ledger.standing(shards), LOOKS),
    }


def commits(ledger: Ledger, shards: int) -> float:
    """Samples a second, each shard leased, committed in batches and finished, one after the other."""
    began = time.perf_counter()
    for shard in range(shards):
        lease = ledger.acquire(shard, "bench", 60.0)
        assert isinstance(lease, Lease)
        for first in range(shard * SHARD, (shard + 1) * SHARD, COMMIT):
            ledger.commit(lease, [Published(first + k, TOKENS, 1000, "") for k in range(COMMIT)])
        assert ledger.finish(lease)
    return shards * SHARD / (time.perf_counter() - began)


def lost_shard(client: redis.Redis, url: str, shards: int) -> dict[str, float]:
    """A lease is given back among `shards` open ones, all of which are queued: what the reaper does then."""
    client.flushall()
    ledger = Ledger(client, url, "bench")
    ledger.create(
        LedgerInfo("bench", "/bench", shards * SHARD, shards, SHARD, "hsq.bench", 1, 1, 1, "bench"), (), (), ()
    )
    ledger.claim(range(shards), None)
    dice, seconds, redis_seconds = random.Random(0), [], []
    for _ in range(LOSSES):
        lease = ledger.acquire(dice.randrange(shards), "bench", 60.0)
        assert isinstance(lease, Lease)
        ledger.release(lease)
        client.config_resetstat()
        began = time.perf_counter()
        assert ledger.standing(shards).may_have_lost(None)
        assert ledger.claim(ledger.lost_shards(shards), None) == [lease.shard]
        seconds.append(time.perf_counter() - began)
        redis_seconds.append(command_seconds(client))
    return {
        "open_shards": shards, "found_and_claimed_ms_median": round(statistics.median(seconds) * 1000, 2),
        "redis_ms_median": round(statistics.median(redis_seconds) * 1000, 3),
    }  # fmt: skip


def script_seconds(client: redis.Redis) -> float:
    """In scripts, since its statistics were reset; what they call is within."""
    return int(client.info("commandstats")["cmdstat_evalsha"]["usec"]) / 1e6


def command_seconds(client: redis.Redis) -> float:
    """In scripts and in what the reaper asks besides, since the reset."""
    found = client.info("commandstats")
    names = ("evalsha", "getrange", "zrangebyscore", "time")
    return sum(int(found[f"cmdstat_{name}"]["usec"]) for name in names) / 1e6


def resume(client: redis.Redis, url: str, root: Path, samples: int) -> dict[str, float]:
    client.flushall()
    layout, info = RunLayout(root), made_run(root, samples)
    sources = link_sources(root)
    for shard in range(info.shards - 1):
        end_shard(layout, info, shard, sources)
    began = time.perf_counter()
    rebuild(client, url, layout, info)
    rebuilt = time.perf_counter() - began
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        found = reconcile(client, url, layout, info)
        seconds.append(time.perf_counter() - began)
        assert not found.rebuilt
        assert found.ledger.counts(samples).done == samples - len(info.shard_range(info.shards - 1))
    return {
        "samples": samples, "resume_s_median": round(statistics.median(seconds), 2),
        "rebuild_of_an_empty_redis_s": round(rebuilt, 1),
    }  # fmt: skip


def made_run(root: Path, samples: int) -> RunInfo:
    fingerprint = Fingerprint(
        model="bench", weights="0123456789abcdef", layers=(2, 18, 33), norm="post", dtype="bfloat16", hidden_size=4096,
        vocab_size=150_000, tokenizer="none", chat_template="none", dataset="bench", max_length=4096,
        min_loss_tokens=0, shard_size=SHARD,
    )  # fmt: skip
    info = RunInfo("bench", time.time(), samples, -(-samples // SHARD), samples * TOKENS, fingerprint)
    (root / "plan").mkdir(parents=True)
    RunLayout(root).run_json.write_text(info.to_json())
    return info


def end_shard(layout: RunLayout, info: RunInfo, shard: int, sources: Iterator[Path]) -> None:
    directory = layout.shard_directory(shard)
    directory.mkdir(parents=True)
    indices = info.shard_range(shard)
    for index in indices:
        os.link(next(sources), layout.sample(shard, index))
    done = [Published(index, TOKENS, 1, "0" * 16) for index in indices]
    os.utime(directory, ns=(0, 0))  # minutes pass between a shard's first file and its manifest
    write_manifest(layout, make_manifest(info.run, shard, 1 << 32, "bench", done, ()))


def link_sources(root: Path) -> Iterator[Path]:
    """Files of one byte to link to, a new one when the last has had all its links."""
    for number in itertools.count():
        path = root / f"source-{number}"
        path.write_bytes(b"\0")
        yield from itertools.repeat(path, LINKS)


def shard_of(shard: int, samples: int) -> range:
    return range(shard * SHARD, min((shard + 1) * SHARD, samples))


def median_ms(call: Callable[[], object], times: int) -> float:
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return round(statistics.median(seconds) * 1000, 3)


def used(client: redis.Redis) -> int:
    return int(client.info("memory")["used_memory"])


if __name__ == "__main__":
    main()
