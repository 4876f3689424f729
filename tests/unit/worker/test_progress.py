"""Every transition of a shard's life, one by one."""

from __future__ import annotations

import pytest

from hsqueue.contracts import errors
from hsqueue.contracts.errors import (
    DumpAmbiguous,
    DumpMissing,
    EngineDown,
    HsqueueError,
    LeaseLost,
    RequestTimeout,
    SampleTooLong,
    VolumeUnusable,
)
from hsqueue.contracts.sample import Ending, Published
from hsworker.progress import FIRST_PAUSE, LONGEST_PAUSE, TOTAL_ATTEMPTS, Send, ShardProgress

RETRIES = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, errors.RetryError)]
SKIPS = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, errors.SkipError)]
STOPS = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, errors.StopError)]
LATER = 1e6


def shard(*lengths: int, suspects: tuple[int, ...] = (), max_attempts: int = 3) -> ShardProgress:
    return ShardProgress(dict(enumerate(lengths)), suspects, max_attempts)


def send(progress: ShardProgress, now: float = LATER) -> Send:
    found = progress.next(now)
    assert found is not None
    progress.started(found)
    return found


def succeed(progress: ShardProgress, index: int) -> None:
    progress.succeeded(Published(index, 1, 1, ""))


# --- order --------------------------------------------------------------------------------------------------


def test_the_longest_is_sent_first() -> None:
    progress = shard(5, 90, 7, 90, 1)
    assert [send(progress, 0.0).index for _ in range(5)] == [1, 3, 2, 0, 4]


def test_naming_the_next_does_not_send_it() -> None:
    progress = shard(5, 9)
    assert progress.next(0.0) == progress.next(0.0) == Send(1, 0, alone=False)
    assert progress.in_flight == 0


def test_only_what_was_named_can_start() -> None:
    with pytest.raises(AssertionError):
        shard(5, 9).started(Send(0, 0, alone=False))


def test_a_shard_with_nothing_to_ask_for_is_over() -> None:
    progress = shard()
    assert (progress.ended, progress.over, progress.next(0.0), progress.pause(0.0)) == (True, True, None, None)


def test_a_retried_sample_waits_behind_those_never_sent() -> None:
    progress = shard(9, 5, 1)
    send(progress, 0.0)
    progress.failed(0, DumpMissing("x"), 0.0)
    assert [send(progress, 0.01).index for _ in range(2)] == [1, 2]


# --- success --------------------------------------------------------------------------------------------------


def test_a_shard_has_ended_when_every_sample_has() -> None:
    progress = shard(5, 9)
    for index in (1, 0):
        assert not progress.ended
        send(progress)
        succeed(progress, index)
    assert (progress.ended, progress.over, progress.draining) == (True, True, False)
    assert sorted(progress.done) == [0, 1]


# --- retry ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", RETRIES, ids=lambda e: e.__name__)
def test_a_sample_that_fails_the_same_way_ends_at_the_limit(error: type[HsqueueError]) -> None:
    progress = shard(5, max_attempts=3)
    for attempt in range(3):
        assert send(progress).attempt == attempt
        assert progress.given_up == {}
        progress.failed(0, error("what happened"), 0.0)
    given = progress.given_up[0]
    assert (given.ending, given.attempts, given.error) == (Ending.FAILED, 3, error.__name__)
    assert given.detail == "what happened"
    assert progress.over


def test_failures_of_different_kinds_are_counted_apart_and_bounded_together() -> None:
    progress = shard(5, max_attempts=2)
    attempts = 0
    while not progress.over:
        send(progress)
        progress.failed(0, RETRIES[attempts]("x"), 0.0)
        attempts += 1
    assert attempts == 2 * TOTAL_ATTEMPTS


def test_pauses_double_up_to_a_limit() -> None:
    progress = shard(5, max_attempts=10)
    pauses = []
    for _ in range(9):
        send(progress)
        progress.failed(0, RequestTimeout("x"), 100.0)
        pause = progress.pause(100.0)
        assert pause is not None
        assert progress.next(100.0 + pause - 0.001) is None
        assert progress.next(100.0 + pause + 0.001) is not None
        pauses.append(pause)
    assert pauses[:3] == pytest.approx([FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE])
    assert pauses[-1] == pytest.approx(LONGEST_PAUSE)


# --- skip -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", SKIPS, ids=lambda e: e.__name__)
def test_a_sample_that_can_never_work_is_not_tried_again(error: type[HsqueueError]) -> None:
    progress = shard(5, 9)
    send(progress)
    progress.failed(1, error("why"), 0.0)
    assert (progress.given_up[1].ending, progress.given_up[1].attempts) == (Ending.SKIPPED, 1)
    assert send(progress).index == 0
    assert progress.next(LATER) is None


# --- engine down, stop ------------------------------------------------------------------------------------------


def test_an_engine_that_goes_down_stops_sending_and_what_is_in_flight_is_awaited() -> None:
    progress = shard(9, 8, 7, 6)
    for _ in range(3):
        send(progress)
    down = EngineDown("gone")
    progress.failed(1, down, 0.0)
    assert (progress.draining, progress.over, progress.next(LATER)) == (True, False, None)
    succeed(progress, 0)
    assert not progress.over
    progress.failed(2, EngineDown("gone too"), 0.0)
    assert (progress.over, progress.ended) == (True, False)
    assert progress.stopped_by is down
    assert progress.downed == {1, 2}
    assert progress.given_up == {}


def test_a_sample_alone_that_takes_the_engine_down_is_quarantined() -> None:
    progress = shard(9, suspects=(0,))
    assert send(progress).alone
    progress.failed(0, EngineDown("gone"), 0.0)
    assert (progress.given_up[0].ending, progress.given_up[0].error) == (Ending.FAILED, "EngineKilled")
    assert progress.downed == set()


@pytest.mark.parametrize("error", STOPS, ids=lambda e: e.__name__)
def test_an_error_for_a_person_stops_the_shard_and_blames_no_sample(error: type[HsqueueError]) -> None:
    progress = shard(9, 8)
    send(progress)
    progress.failed(0, error("why"), 0.0)
    assert (progress.over, progress.next(LATER)) == (True, None)
    assert (progress.given_up, progress.downed) == ({}, set())


def test_the_first_reason_to_stop_is_kept() -> None:
    progress = shard(9, 8)
    send(progress)
    progress.stop(LeaseLost("first"))
    progress.failed(0, VolumeUnusable("second"), 0.0)
    progress.stop(LeaseLost("third"))
    assert str(progress.stopped_by) == "first"


def test_a_retry_while_draining_does_not_prolong_the_shard() -> None:
    progress = shard(9, 8)
    send(progress)
    progress.stop(LeaseLost("lost"))
    progress.failed(0, DumpMissing("x"), 0.0)
    assert (progress.over, progress.pause(LATER)) == (True, None)


def test_a_skip_while_draining_still_ends_its_sample() -> None:
    progress = shard(9)
    send(progress)
    progress.stop(LeaseLost("lost"))
    progress.failed(0, SampleTooLong("x"), 0.0)
    assert progress.ended


# --- alone ------------------------------------------------------------------------------------------------------


def test_suspects_come_last_and_alone() -> None:
    progress = shard(5, 9, 7, suspects=(1, 2))
    assert send(progress) == Send(0, 0, alone=False)
    succeed(progress, 0)
    assert send(progress) == Send(1, 0, alone=True)
    succeed(progress, 1)
    assert send(progress) == Send(2, 0, alone=True)


def test_a_sample_alone_that_never_reached_the_engine_has_not_done_it() -> None:
    progress = shard(9, suspects=(0,))
    send(progress)
    down = EngineDown("another shard's sample did it")
    down.asked = False
    progress.failed(0, down, 0.0)
    assert (progress.given_up, progress.downed, progress.over) == ({}, {0}, True)


def test_nothing_follows_a_sample_alone_before_its_outcome_is_told() -> None:
    """Its request is over before its outcome is known here; what is sent in between meets a dead engine, and innocent
    as it is, it would be quarantined as well.
    """
    progress = shard(5, 9, 7, suspects=(0, 1))
    send(progress)
    succeed(progress, 2)
    assert send(progress) == Send(1, 0, alone=True)
    assert (progress.next(LATER), progress.pause(LATER)) == (None, None)
    progress.failed(1, EngineDown("it died"), 0.0)
    assert (progress.next(LATER), list(progress.given_up)) == (None, [1])


def test_a_sample_to_be_sent_alone_is_named_while_others_are_in_flight() -> None:
    """So that the budget can hold back everybody else until it may be sent."""
    progress = shard(5, 90, suspects=(1,))
    send(progress)
    assert progress.pause(0.0) == 0.0
    assert progress.next(0.0) == Send(1, 0, alone=True)


def test_an_ambiguous_sample_is_tried_again_alone() -> None:
    progress = shard(9, 5)
    send(progress)
    progress.failed(0, DumpAmbiguous("two dumps"), 0.0)
    assert [send(progress), send(progress)] == [Send(1, 0, alone=False), Send(0, 1, alone=True)]


def test_once_alone_stays_alone() -> None:
    progress = shard(9, suspects=(0,), max_attempts=3)
    send(progress)
    progress.failed(0, DumpMissing("x"), 0.0)
    assert send(progress).alone


def test_suspects_of_samples_that_have_ended_do_not_matter() -> None:
    progress = ShardProgress({3: 9}, {1, 2}, 3)
    assert send(progress) == Send(3, 0, alone=False)


def test_a_long_error_is_cut_for_the_ledger() -> None:
    progress = shard(9, max_attempts=1)
    send(progress)
    progress.failed(0, DumpMissing("x" * 10_000), 0.0)
    assert len(progress.given_up[0].detail) <= 500
