"""What the embedded engine does when dumps lie unread: it waits for its reader, gives it up, and cleans up."""

from __future__ import annotations

import itertools
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hsqueue.contracts.complaint import COMPLAINT_NAME, Complaint
from tests.support.asking import ask, failed, read_dump, rid
from tests.support.engine import Engine, engine
from tests.support.waiting import await_true

LIMIT = "20000"
"""Bytes; room for three dumps of five tokens."""


def unread(where: Engine) -> list[Path]:
    return list(where.dump_dir.glob("req_*"))


def test_a_slow_reader_slows_the_engine_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HSQ_DUMP_LIMIT", LIMIT)
    monkeypatch.setenv("HSQ_DUMP_PENDING_BYTES", "1")
    monkeypatch.setenv("HSQ_DUMP_WAIT", "600")
    total = 20
    with engine(tmp_path, "--prefill-tokens", "5") as where, ThreadPoolExecutor(total) as pool:
        answers = [pool.submit(ask, where, [n] * 5, rid(n)) for n in range(total)]
        waiting = set(range(total))
        while waiting:
            await_true(lambda: len(unread(where)) == min(3, len(waiting)), "the engine did not go on")
            answered = sum(answer.done() for answer in answers)
            # Three unread, one that waits for room, one that waits to be pending.
            assert answered <= total - len(waiting) + 5
            n = next(n for n in sorted(waiting) if (where.dump_dir / f"req_{rid(n)}").exists())
            _, tensors = read_dump(where, rid(n))
            assert tensors["input_ids"].tolist() == [n] * 5
            waiting.remove(n)
            shutil.rmtree(where.dump_dir / f"req_{rid(n)}")
        assert all(answer.result().ok for answer in answers)
        assert failed(where) == 0
    assert "no dump of" not in (tmp_path / "engine.log").read_text()


def test_an_engine_without_a_reader_drops_dumps_and_serves_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HSQ_DUMP_LIMIT", LIMIT)
    monkeypatch.setenv("HSQ_DUMP_WAIT", "1")
    with engine(tmp_path) as where:
        for n in range(6):
            assert ask(where, [1] * 5, rid(n)).ok
        await_true(lambda: failed(where) == 3, "dumps beyond the limit were not counted")
        assert len(unread(where)) == 3
        assert not list(where.dump_dir.glob(".tmp-*"))
        complaint = Complaint.from_json((where.dump_dir / COMPLAINT_NAME).read_bytes())
        assert complaint.rid == rid(3)
        for path in unread(where):
            shutil.rmtree(path)
        numbers = itertools.count(7)
        # It looks once a second, so the first may still be dropped.
        await_true(
            lambda: ask(where, [1] * 5, rid(next(numbers))).ok and bool(unread(where)), "the engine never saw the room"
        )
    assert (tmp_path / "engine.log").read_text().count("HSQ_DUMP_LIMIT") == 1
    assert "HSQ_DUMP_LIMIT" in complaint.text


def test_dumps_that_nobody_reads_go_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HSQ_DUMP_TTL", "2")
    with engine(tmp_path) as where:
        for n in range(3):
            assert ask(where, [1] * 5, rid(n)).ok
        await_true(lambda: bool(unread(where)), "no dump was written")
        await_true(lambda: not unread(where), "dumps stayed for ever")
        assert failed(where) == 0
