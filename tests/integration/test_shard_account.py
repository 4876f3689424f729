"""What a manifest says of how its shard came about."""

from __future__ import annotations

import time

import pytest

from hsqueue.contracts.errors import EngineDown, EngineRefused, LeaseLost
from hsqueue.contracts.meters import ENGINE, STAGES
from hsqueue.contracts.rid import RequestId
from hsqueue.contracts.work import Work
from hsqueue.store.manifest import read_manifest
from hsworker.shard import ShardRun
from tests.integration.test_shard import LENGTHS, SETTINGS, Floor, floor
from tests.support.ledger import expire, granted

__all__ = ["floor"]


def account(floor: Floor) -> Work:
    manifest = read_manifest(floor.volume.layout.manifest(0))
    assert manifest is not None
    return manifest.work


def test_a_shard_that_went_well_has_one_lease_and_its_times(floor: Floor) -> None:
    before = time.time()
    floor.work("gpu0@node:/dumps")
    work = account(floor)
    assert (work.leases, work.lost, work.engine_downs, work.retries) == (1, 0, 0, {})
    (span,) = work.spans
    assert (span.worker, span.samples, span.tokens) == ("gpu0@node", len(LENGTHS), sum(LENGTHS))
    assert before - 0.001 <= span.began <= span.ended <= time.time() + 0.001
    assert all(work.seconds[stage] > 0 for stage in STAGES if stage != ENGINE), work.seconds
    assert floor.ledger.client.exists(floor.ledger.keys.work) == 0


def test_what_was_asked_for_again_is_counted_by_error_and_what_ends_a_sample_is_not(floor: Floor) -> None:
    def dump(rid: RequestId) -> None:
        if rid.index == 1 or (rid.index, rid.attempt) == (3, 0):
            raise EngineRefused("500")
        floor.dump(rid)

    floor.engine.dump = dump
    assert floor.work().failed == 1
    assert account(floor).retries == {"EngineRefused": SETTINGS.max_attempts - 1 + 1}


def test_an_engines_death_is_remembered_under_the_next_lease(floor: Floor) -> None:
    def dump(rid: RequestId) -> None:
        floor.dump(rid)
        if rid.index == 3:
            raise EngineDown("gone")

    floor.engine.dump, floor.engine.stands = dump, False
    first = floor.work("gpu0@node:/dumps")
    assert isinstance(first.stopped_by, EngineDown)
    floor.engine.dump, floor.engine.stands = floor.dump, True
    assert floor.work("gpu1@node:/dumps").ended
    work = account(floor)
    assert (work.leases, work.lost, work.engine_downs) == (2, 0, 1)
    assert [span.worker for span in work.spans] == ["gpu0@node", "gpu1@node"]
    assert [span.samples for span in work.spans] == [first.done, len(LENGTHS) - first.done]


def test_a_worker_that_dies_is_remembered_by_the_lease_that_it_never_ended(floor: Floor) -> None:
    """As a killed one leaves it: the lease and the account stand as they were when it began."""

    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ShardRun, "_work", die)
        with pytest.raises(Killed):
            floor.work("gpu0@node:/dumps")
    expire(floor.ledger, 0)
    assert floor.work("gpu1@node:/dumps").ended
    work = account(floor)
    assert (work.leases, work.lost) == (2, 1)
    assert [(span.worker, span.ended > 0) for span in work.spans] == [("gpu0@node", False), ("gpu1@node", True)]


def test_who_lost_its_lease_leaves_the_account_to_who_has_it(floor: Floor) -> None:
    theirs = Work().opened("gpu1@node", 5.0)

    def dump(rid: RequestId) -> None:
        if rid.index == 2:
            expire(floor.ledger, 0)
            granted(floor.ledger, owner="gpu1@node:/dumps")
            floor.ledger.keep_work(0, theirs)
        raise EngineRefused("500")

    floor.engine.dump = dump
    assert isinstance(floor.work("gpu0@node:/dumps").stopped_by, LeaseLost)
    assert floor.ledger.work(0) == theirs


def test_an_account_in_redis_that_cannot_be_read_counts_as_none(floor: Floor) -> None:
    for text in ("", "{", "[]", "null", "7", '{"leases": -1}', "[" * 100_000):
        floor.ledger.client.hset(floor.ledger.keys.work, "0", text)
        assert floor.ledger.work(0) == Work()
    assert floor.work().ended
    assert account(floor).leases == 1
