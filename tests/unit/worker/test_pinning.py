from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from hscapture.card import write_card
from hsqueue.contracts.errors import (
    DumpDirectoryNotShared,
    EngineDown,
    EngineUnfit,
    UsageError,
    WorkerAlreadyPinned,
)
from hsqueue.planning.target import from_card
from hsworker.engine import EngineClient
from hsworker.pinning import Pin, check_engine, lock_dump_directory, require_card
from tests.support.fakeengine import CARD


def pin(directory: Path, name: str = "gpu0") -> Pin:
    return Pin("http://127.0.0.1:30000", directory, name)


@pytest.mark.parametrize("name", ["gpu0", "a", "node-1.gpu_0", "A" * 64])
def test_a_plain_name_is_usable(tmp_path: Path, name: str) -> None:
    assert name in pin(tmp_path, name).owner


@pytest.mark.parametrize("name", ["", " ", "a b", "../x", "-x", ".x", "a/b", "a@b", "ä", "a" * 65, "a\n"])
def test_a_name_that_could_be_misread_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="not usable"):
        pin(tmp_path, name)


def test_an_unknown_layout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="layout"):
        Pin("http://h:1", tmp_path, "gpu0", "newest")


def test_a_pin_reaches_the_processes_of_its_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Pin("http://h:1", tmp_path, "gpu0", "counter")
    for name, value in mine.to_environment().items():
        monkeypatch.setenv(name, value)
    assert Pin.from_environment() == mine
    monkeypatch.delenv("HSQ_ENGINE_URL")
    with pytest.raises(UsageError, match="HSQ_ENGINE_URL"):
        Pin.from_environment()


def test_an_owner_is_one_word_and_the_same_after_a_restart(tmp_path: Path) -> None:
    owner = pin(tmp_path / "with space").owner
    assert owner == pin(tmp_path / "with space").owner
    assert " " not in owner
    assert owner != pin(tmp_path / "other").owner


def test_one_worker_reads_a_directory(tmp_path: Path) -> None:
    first = lock_dump_directory(pin(tmp_path))
    with pytest.raises(WorkerAlreadyPinned, match=str(tmp_path)):
        lock_dump_directory(pin(tmp_path, "gpu1"))
    first.close()
    lock_dump_directory(pin(tmp_path)).close()


def test_a_standby_waits_for_the_last_process_of_the_other(tmp_path: Path) -> None:
    first = lock_dump_directory(pin(tmp_path))
    waiting, taken = threading.Event(), threading.Event()

    def stand_by() -> None:
        with lock_dump_directory(pin(tmp_path, "gpu1"), waiting.set):
            taken.set()

    thread = threading.Thread(target=stand_by, daemon=True)
    thread.start()
    assert waiting.wait(10)
    assert not taken.wait(0.2)
    first.close()
    assert taken.wait(10)
    thread.join()


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DumpDirectoryNotShared, match="file"):
        lock_dump_directory(pin(tmp_path / "file"))


class Answering:
    """An engine's ``/server_info``, and nothing else of it."""

    url = "http://h:1"

    def __init__(self, info: dict[str, Any] | None) -> None:
        self.info = info

    def server_info(self) -> dict[str, Any]:
        if self.info is None:
            raise EngineDown("no engine answers")
        return self.info


def client(info: dict[str, Any] | None) -> EngineClient:
    return cast(EngineClient, Answering(info))


OFF = {"hsq_instance": "i1", "hsq_problem": "speculative decoding is on"}
"""What a server says whose plugin refused it."""


@pytest.mark.parametrize("info", [OFF, {"internal_states": [{}, OFF]}], ids=["plain", "data-parallel"])
def test_an_engine_without_a_card_names_its_problem(tmp_path: Path, info: dict[str, Any]) -> None:
    with pytest.raises(EngineUnfit, match="http://h:1 does not capture: speculative decoding is on"):
        require_card(client(info), tmp_path)


@pytest.mark.parametrize("info", [None, {}, {"internal_states": None}, {"hsq_instance": "i1", "hsq_problem": ""}])
def test_without_a_card_and_without_a_problem_the_directory_is_to_blame(
    tmp_path: Path, info: dict[str, Any] | None
) -> None:
    with pytest.raises(DumpDirectoryNotShared, match=r"engine\.json"):
        require_card(client(info), tmp_path)


def test_a_card_with_a_problem_is_as_good_as_none(tmp_path: Path) -> None:
    write_card(tmp_path, replace(CARD, problem="pipeline parallelism is on"))
    with pytest.raises(EngineUnfit, match="pipeline parallelism is on"):
        require_card(client(None), tmp_path)
    write_card(tmp_path, CARD)
    assert require_card(client(None), tmp_path) == CARD


def test_a_plan_is_not_made_for_a_card_with_a_problem() -> None:
    assert from_card(CARD).target == CARD.target
    with pytest.raises(EngineUnfit, match="pipeline parallelism is on"):
        from_card(replace(CARD, problem="pipeline parallelism is on"))


@pytest.mark.parametrize("wrap", [lambda told: told, lambda told: {"internal_states": [told, told]}])
def test_a_card_belongs_to_the_engine_that_says_so(wrap: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    check_engine(client(wrap({"hsq_instance": "i1", "hsq_problem": ""})), CARD)
    with pytest.raises(DumpDirectoryNotShared, match="instance i2"):
        check_engine(client(wrap({"hsq_instance": "i2", "hsq_problem": ""})), CARD)
    with pytest.raises(EngineUnfit, match="speculative"):
        check_engine(client(wrap(OFF)), CARD)
