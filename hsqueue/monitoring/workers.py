"""How the workers stand, from their signs of life."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from hsqueue.contracts import fields
from hsqueue.ledger.signs import Sign
from hsqueue.monitoring.limits import SILENCE

SERVING, PAUSED, STOPPING, GONE = "serving", "paused", "stopping", "gone"
STATES = (SERVING, PAUSED, STOPPING, GONE)


@dataclass(frozen=True, slots=True)
class WorkerState:
    """seen: seconds since its last sign of life. state: one of STATES. paused: why, or empty. waits_for: ``engine`` or
    ``volume`` while it is paused. gpu: what its engine computes on, where that is known. shards: that it holds a lease
    of, of one run where that is asked for. leases: that it holds of any run. tokens_per_second: published over five
    minutes. requests, tokens: in flight. dump_bytes: awaited or unread, of
    at most dump_limit. dump_free, dump_total: bytes of the dump directory's file system.
    engine_quiet: seconds since the engine answered, with requests in flight; else 0. volume_quiet: the same of
    publications. answer_seconds, publish_seconds: what they take of late.
    """

    name: str
    engine: str
    gpu: str
    host: str
    queue: str
    seen: float
    state: str
    paused: str
    waits_for: str
    shards: tuple[int, ...]
    leases: int
    tokens_per_second: float
    requests: int
    tokens: int
    dump_bytes: int
    dump_limit: int
    dump_free: int
    dump_total: int
    engine_quiet: float
    volume_quiet: float
    answer_seconds: float
    publish_seconds: float

    @property
    def lives(self) -> bool:
        return self.state != GONE


def worker_states(signs: Mapping[str, Sign], held: Mapping[str, tuple[int, ...]]) -> tuple[WorkerState, ...]:
    """By name. held: shards that each worker has. What is no sign of life is passed over: it must not hide others."""
    states = (_worker_state(name, sign, held.get(name, ())) for name, sign in sorted(signs.items()))
    return tuple(state for state in states if state is not None)


def _worker_state(name: str, sign: Sign, shards: tuple[int, ...]) -> WorkerState | None:
    try:
        words = json.loads(sign.words)
        gone = sign.age >= SILENCE
        return WorkerState(
            name=name,
            engine=fields.text(words, "engine"),
            gpu=fields.text(words, "gpu"),
            host=fields.text(words, "host"),
            queue=fields.text(words, "queue"),
            seen=round(sign.age, 1),
            state=GONE if gone else fields.text(words, "state", (SERVING, PAUSED, STOPPING)),
            paused=fields.text(words, "paused"),
            waits_for=fields.text(words, "waits_for"),
            shards=shards,
            leases=0 if gone else fields.count(words, "leases"),
            tokens_per_second=0.0 if gone else fields.seconds(words, "tokens_per_second"),
            requests=0 if gone else fields.count(words, "requests"),
            tokens=0 if gone else fields.count(words, "tokens"),
            dump_bytes=fields.count(words, "dump_bytes"),
            dump_limit=fields.count(words, "dump_limit"),
            dump_free=fields.count(words, "dump_free"),
            dump_total=fields.count(words, "dump_total"),
            engine_quiet=fields.seconds(words, "engine_quiet"),
            volume_quiet=fields.seconds(words, "volume_quiet"),
            answer_seconds=fields.seconds(words, "answer_seconds"),
            publish_seconds=fields.seconds(words, "publish_seconds"),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
