"""Small records from outside: messages, manifests, cards, headers of published files, run.json, rids, answers."""

from __future__ import annotations

import json
import random
import string
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kombu.message import Message

from hsqueue.contracts.card import EngineCard
from hsqueue.contracts.fingerprint import RunInfo
from hsqueue.contracts.message import TASK_NAME, ShardMessage
from hsqueue.contracts.meters import STAGES
from hsqueue.contracts.rid import dump_directory_name, parse_rid
from hsqueue.contracts.sample import Ending, GivenUp, Published
from hsqueue.contracts.work import Work
from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.records import LedgerInfo
from hsqueue.ledger.signs import Sign
from hsqueue.monitoring.meters import meters_of
from hsqueue.monitoring.pace import Pace, pace_of
from hsqueue.monitoring.workers import worker_states
from hsqueue.store.manifest import Manifest, make_manifest, seal
from hsqueue.store.samplefile import parse_sample_header, read_sample_header
from hsworker.consumer import require_ours
from hsworker.matching import check_response, parse_response
from tests.fuzz.values import changed, deep, odd, text
from tests.support.mutate import mutated
from tests.support.volume import make_volume

RUN_SIGNS = set(string.ascii_lowercase + string.digits + "-")
CONTENT_TYPES = (
    "application/json", "application/x-python-serialize", "application/x-yaml", "application/x-msgpack",
    "application/data", "text/plain", "", None, "pickle", "json", "application/JSON",
)  # fmt: skip


class Refused(Exception):
    """Refused by an error that is no error of a worker's: no JSON at all, or no name for a directory."""


def random_text(good: Any, dice: random.Random) -> bytes:
    """Bytes in place of a record's JSON: noise, too deep, its bytes changed, or its values."""
    how = dice.randrange(10)
    if how == 0:
        return dice.randbytes(dice.randrange(200))
    if how == 1:
        return deep(dice).encode()
    if how < 5:
        return mutated(text(good).encode(), dice)[0]
    value = changed(good, dice)
    return text(changed(value, dice) if dice.random() < 0.3 else value).encode()


def message(dice: random.Random) -> bool:
    """A message as kombu hands it to the worker's consumer, and what the task then takes."""
    good = [[], {"run": "r1", "shard": 3, "n": 8}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]
    kind = dice.choice(CONTENT_TYPES) if dice.random() < 0.2 else "application/json"
    headers: Any = {"task": TASK_NAME, "id": "x"}
    if dice.random() < 0.2:
        headers |= _as_dict(changed(headers, dice))
    came = Message(
        random_text(good, dice), content_type=kind, content_encoding=dice.choice(("utf-8", "utf-8", "binary")),
        headers=headers, accept={"application/json"},
    )  # fmt: skip
    require_ours(came)
    assert (kind, came.headers["task"]) == ("application/json", TASK_NAME), came
    made = ShardMessage.from_kwargs(came.decode()[1])
    assert 1 <= len(made.run) <= 32, made
    assert set(made.run) <= RUN_SIGNS, made
    assert not made.run.startswith("-"), made
    for number in (made.shard, made.n):
        assert type(number) is int, made
        assert 0 <= number < 1 << 40, made
    return True


MANIFEST = make_manifest(
    "r1", 1, 1 << 32, "gpu0@node", [Published(4, 9, 900, "b" * 32), Published(3, 5, 500, "a" * 32)],
    [GivenUp(5, Ending.SKIPPED, 1, "SampleTooLong", "more tokens")],
    Work().opened("gpu0@node", 10.0).closed(12.0, 2, 14, {"engine": 1.5}, {"DumpMissing": 1}, False),
)  # fmt: skip
MANIFEST_TABLE = {k: v for k, v in json.loads(MANIFEST.to_json()).items() if k != "checksum"}


def manifest(dice: random.Random) -> bool:
    """Bytes that were changed are refused; values that were changed and sealed anew are at least of their types."""
    genuine = MANIFEST.to_json()
    if dice.random() < 0.5:
        data = mutated(genuine, dice)[0] if dice.random() < 0.9 else dice.randbytes(dice.randrange(300))
        Manifest.from_json(data, "m")
        raise AssertionError(f"accepted: {data!r}")
    made = Manifest.from_json(seal(random_text(MANIFEST_TABLE, dice).decode(errors="replace")), "m")
    if made.problem("r1", 1, range(3, 6)) is not None:
        return False
    assert sorted([d.index for d in made.done] + [g.index for g in made.given_up]) == [3, 4, 5], made
    for one in made.done:
        assert all(type(n) is int and n >= 0 for n in (one.index, one.tokens, one.bytes)), made
        assert type(one.digest) is str, made
    for lost in made.given_up:
        assert lost.ending in ("skipped", "failed"), made
        assert type(lost.attempts) is int, made
    assert list(made.work.seconds) == list(STAGES), made
    assert all(0 <= n < float("inf") for n in made.work.seconds.values()), made
    for span in made.work.spans:
        assert type(span.worker) is str, made
        assert type(span.samples) is type(span.tokens) is int, made
    return True


CARD: dict[str, Any] = {
    "contract": 1, "instance": "i", "model": "m", "weights": "w", "num_layers": 8, "hidden_size": 8, "vocab_size": 100,
    "context_length": 64, "dtype": "bfloat16", "layers": [2, 4, 5], "layers_asked": [2, 4, 5],
    "layers_held": [2, 4, 5], "norm": "post", "server": "sglang 0.5", "host": "h", "port": 1, "pid": 1,
    "started": 1.5, "ranks": {"tp": 1}, "problem": "", "device": "cpu",
}  # fmt: skip


def card(dice: random.Random) -> bool:
    made = EngineCard.from_json(random_text(CARD, dice))
    target = made.target
    assert target.dtype in ("bfloat16", "float16", "float32"), made
    assert target.norm in ("post", "pre", "both"), made
    assert all(type(n) is int and n >= 0 for n in (*made.layers, made.vocab_size, made.context_length, made.port)), made
    assert target.queue.isprintable(), made
    assert "/" not in target.queue, made
    return True


class Files:
    """A published file's bytes. place: a directory in memory."""

    def __init__(self, place: Path) -> None:
        volume = make_volume(place / "run", (5, 6), 2)
        volume.publish(0)
        self.genuine = volume.path(0).read_bytes()
        self.digest = read_sample_header(volume.path(0)).digest
        self.path = place / "file"
        self.run_json = json.loads(volume.info.to_json())

    def sample(self, dice: random.Random) -> bool:
        """Its digest stands only for the very header that was published."""
        data = mutated(self.genuine, dice)[0] if dice.random() < 0.9 else dice.randbytes(dice.randrange(300))
        self.path.write_bytes(data)
        found = read_sample_header(self.path)
        head = found.file.size
        if found.digest == self.digest:
            assert data[:head] == self.genuine[:head], data[:2000]
            assert len(data) == len(self.genuine), data[:2000]
        assert parse_sample_header(data[:head]) == found
        return True

    def run(self, dice: random.Random) -> bool:
        info = RunInfo.from_json(random_text(self.run_json, dice), "run.json")
        assert set(info.run) <= RUN_SIGNS, info
        assert 1 <= len(info.run) <= 32, info
        if info.shards:
            assert len(info.shard_range(info.shards - 1)) > 0, info
        return True


def rid(dice: random.Random) -> bool:
    """A name that is taken as a request's id, or made a directory of, stays one plain name."""
    good = "hsq.r1.3.4294967296.0"
    how = dice.randrange(3)
    name = (
        str(odd(dice)) if how == 0
        else mutated(good.encode(), dice)[0].decode(errors="surrogateescape") if how == 1
        else "".join(dice.choice("hsq.r1-/\\0\0 é٣_A..") for _ in range(dice.randrange(30)))
    )  # fmt: skip
    found = parse_rid(name)
    if found is not None:
        assert str(found) == name or str(found) == _without_zeros(name), name
    try:
        directory = dump_directory_name(name)
    except ValueError:
        if found is None:
            raise Refused from None
        raise
    assert not {"/", "\0"} & set(directory), name
    assert directory.isascii(), name
    assert len(directory) <= 255, name
    assert ".." not in directory, name
    return True


def _without_zeros(name: str) -> str:
    head, run, *numbers = name.split(".")
    return ".".join([head, run, *(str(int(n)) for n in numbers)])


def response(dice: random.Random) -> bool:
    """An engine's answer is taken only if it says that it computed this whole prompt."""
    info = {"id": "r", "prompt_tokens": 6, "cached_tokens": 0, "finish_reason": {"type": "length"}}
    try:
        body = json.loads(random_text({"text": "", "meta_info": info}, dice))
    except (ValueError, RecursionError):
        raise Refused from None
    check_response(parse_response(body, "r"), "r", 6)
    found = body["meta_info"]
    assert (found["id"], found["prompt_tokens"], found.get("cached_tokens", 0)) == ("r", 6, 0), body
    return True


class Replies:
    """What Redis holds in place of the ledger's hashes: any strings."""

    def __init__(self) -> None:
        self.table: dict[str, str] = {}
        client = types.SimpleNamespace(
            hgetall=lambda _: dict(self.table), hmget=lambda _, names: [self.table.get(n) for n in names],
            register_script=lambda _: None,
        )  # fmt: skip
        self.ledger = Ledger(client, "redis://h", "r1")  # type: ignore[arg-type]

    def one(self, dice: random.Random) -> bool:
        good = {
            "dir": "/volume/run", "samples": "20", "shards": "5", "shard_size": "4", "queue": "q", "epoch": "3",
            "done": "1", "skipped": "0", "failed": "0", "tokens": "9", "bytes_per_token": "100", "model": "m",
            "began": "1000000", "resumed": "1000000", "last": "1200000", "worked": "200000", "3": "123 9",
            "engine.us": "1000", "engine.le.0.5": "2", "errors.DumpMissing": "1",
        }  # fmt: skip
        self.table = {str(k): str(v) for k, v in _as_dict(changed(good, dice)).items()}
        calls: tuple[Callable[[], object], ...] = (
            self.ledger.info, lambda: self.ledger.counts(20), lambda: self._given_up(dice),
            lambda: self._holders(dice), lambda: self._beat(dice), self._pace, self._meters,
        )  # fmt: skip
        found = dice.choice(calls)()
        if isinstance(found, LedgerInfo):
            assert found.dir.startswith("/"), found
            assert "\0" not in found.dir, found
            assert all(type(n) is int for n in (found.samples, found.shards, found.epoch)), found
        return True

    def _given_up(self, dice: random.Random) -> object:
        ending = random_text(["skipped", 2, "E", "why"], dice).decode(errors="replace")
        self.table = {str(dice.choice((3, 3, "x", -1))): ending}
        return self.ledger.given_up()

    def _holders(self, dice: random.Random) -> object:
        self.table = {str(odd(dice))[:20]: str(odd(dice))} if dice.random() < 0.7 else {"3": "7 gpu0"}
        return self.ledger.holders()

    def _beat(self, dice: random.Random) -> object:
        numbers = (
            "leases", "tokens_per_second", "requests", "tokens", "dump_bytes", "dump_limit", "dump_free", "dump_total",
            "engine_quiet", "volume_quiet", "answer_seconds", "publish_seconds",
        )  # fmt: skip
        good = {
            "engine": "http://h", "queue": "q", "paused": "", "gpu": "cpu", "host": "h", "state": "serving",
            "waits_for": "", **dict.fromkeys(numbers, 1),
        }  # fmt: skip
        return worker_states({"gpu0": Sign(1.0, random_text(good, dice).decode(errors="replace"))}, {})

    def _pace(self) -> Pace:
        with self.ledger.reading():
            return pace_of(self.table, 1300.0, 10.0, pending=True)

    def _meters(self) -> object:
        with self.ledger.reading():
            return meters_of(self.table)


def _as_dict(value: Any) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {"dir": value}
