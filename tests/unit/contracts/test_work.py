from __future__ import annotations

import json

from hsqueue.contracts.meters import STAGES
from hsqueue.contracts.work import MOST_SPANS, Span, Work

SECONDS = dict(zip(STAGES, (4.0, 1.0, 2.0, 0.5), strict=True))


def test_a_lease_is_counted_when_it_begins() -> None:
    work = Work().opened("gpu0", 10.0)
    assert (work.leases, work.lost, work.spans) == (1, 0, (Span("gpu0", 10.0),))


def test_what_leases_did_adds_up() -> None:
    work = Work().opened("gpu0", 10.0).closed(15.0, 3, 30, SECONDS, {"DumpMissing": 2}, True)
    work = work.opened("gpu1", 20.0).closed(21.0, 1, 9, SECONDS, {"DumpMissing": 1, "RequestTimeout": 1}, False)
    assert work.seconds == {stage: 2 * seconds for stage, seconds in SECONDS.items()}
    assert work.retries == {"DumpMissing": 3, "RequestTimeout": 1}
    assert (work.leases, work.lost, work.engine_downs) == (2, 0, 1)
    assert work.spans == (Span("gpu0", 10.0, 15.0, 3, 30), Span("gpu1", 20.0, 21.0, 1, 9))


def test_a_lease_that_never_ended_is_lost_to_the_next() -> None:
    work = Work().opened("gpu0", 10.0).opened("gpu1", 70.0).closed(71.0, 4, 40, {}, {}, False).opened("gpu0", 80.0)
    assert (work.leases, work.lost) == (3, 1)


def test_only_the_last_leases_are_told_one_by_one() -> None:
    work = Work()
    for at in range(40):
        work = work.opened("gpu0", float(at))
    assert (work.leases, work.lost, len(work.spans)) == (40, 39, MOST_SPANS)
    assert work.spans[-1].began == 39.0


def test_an_account_comes_back_as_it_was_written() -> None:
    work = Work().opened("gpu0", 10.12345).closed(15.98765, 3, 30, SECONDS, {"DumpMissing": 2}, True)
    assert Work.from_table(json.loads(json.dumps(work.to_table()))) == work
