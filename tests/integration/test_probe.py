"""What a worker asks its engine for before it begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from hsqueue.contracts.errors import EngineRefused, HsqueueError, RequestAborted
from hsqueue.planning.target import read_card
from hsworker import pinning
from hsworker.engine import EngineClient
from hsworker.matching import Response
from hsworker.pinning import PROBES, probe
from tests.support.engine import engine


class Unlucky(EngineClient):
    """Its first `failures` requests end in `error`; the others reach the engine."""

    def __init__(self, url: str, error: HsqueueError, failures: int) -> None:
        super().__init__(url)
        self.error, self.failures, self.asked = error, failures, 0

    def prefill(self, rid: str, input_ids: list[int]) -> Response:
        self.asked += 1
        if self.asked <= self.failures:
            raise self.error
        return super().prefill(rid, input_ids)


@pytest.mark.parametrize("error", [RequestAborted("aborted"), EngineRefused("answered 503")], ids=lambda e: e.name)
def test_bad_luck_keeps_no_worker_from_starting_and_a_broken_engine_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: HsqueueError
) -> None:
    monkeypatch.setattr(pinning, "PROBE_PAUSE", 0.01)
    with engine(tmp_path) as one:
        card = read_card(one.dump_dir)
        unlucky = Unlucky(one.url, error, PROBES - 1)
        probe(unlucky, one.dump_dir, card)
        assert unlucky.asked == PROBES

        broken = Unlucky(one.url, error, 99)
        with pytest.raises(type(error)):
            probe(broken, one.dump_dir, card)
        assert broken.asked == PROBES
        assert [path.name for path in one.dump_dir.glob("req_*")] == []
