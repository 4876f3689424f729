from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hscapture.config import CaptureSettings
from hscapture.sglang import plugin
from hscapture.sglang.hookpoints import HOOK_POINTS
from hscapture.sglang.hooks import Hooks


class Aborts:
    """A session that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, bool]] = []

    def abort(self, rid: str, everything: bool) -> None:
        self.told.append((rid, everything))


@pytest.fixture
def hooks(tmp_path: Path) -> Hooks:
    return Hooks(CaptureSettings(dump_dir=tmp_path), "0.5.23", lambda: True, "the reason")


def test_an_abort_reaches_the_session(hooks: Hooks) -> None:
    hooks.after_abort(None, object(), SimpleNamespace(rid="hsq.a", abort_all=False))
    session = Aborts()
    hooks._session = session  # type: ignore[assignment]
    hooks.after_abort(None, object(), SimpleNamespace(rid="hsq.a", abort_all=False))
    hooks.after_abort(None, object(), SimpleNamespace(rid=None, abort_all=True))
    assert session.told == [("hsq.a", False), ("", True)]


def test_a_rank_tells_of_itself_once_it_knows(hooks: Hooks) -> None:
    state = SimpleNamespace(internal_state={"memory_usage": 1})
    hooks.after_internal_state(state, object())
    assert state.internal_state == {"memory_usage": 1}
    hooks.refuse()
    hooks.after_internal_state(state, object())
    assert state.internal_state["hsq_problem"] == "the reason"
    assert state.internal_state["hsq_instance"]


def test_every_hook_point_is_hooked(hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    hooked: list[str] = []

    def register(target: str, hook: Any, kind: object) -> None:
        assert callable(hook)
        assert kind is not None
        hooked.append(target)

    kinds = SimpleNamespace(AFTER="after", AROUND="around", BEFORE="before")
    registry = SimpleNamespace(HookRegistry=SimpleNamespace(register=register), HookType=kinds)
    for name in ("sglang", "sglang.srt", "sglang.srt.plugins"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace())
    monkeypatch.setitem(sys.modules, "sglang.srt.plugins.hook_registry", registry)
    plugin._hook(hooks, set(), reports_only=False)
    assert sorted(hooked) == sorted(point.target for point in HOOK_POINTS)
