from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from hsqueue.contracts.meters import DUMP, ENGINE, VOLUME
from hsworker.times import ENOUGH, Spent, Times, complaint

QUICK, SLOW = Spent(ENOUGH, ENOUGH * 0.1), Spent(ENOUGH, ENOUGH * 3.0)


def test_time_is_spent_on_what_succeeds() -> None:
    times = Times()
    with times.spend(ENGINE):
        pass
    with pytest.raises(OSError, match="full"), times.spend(VOLUME):
        raise OSError("full")
    assert (times[ENGINE].samples, times[DUMP].samples, times[VOLUME].samples) == (1, 0, 0)
    assert str(times).startswith("engine 0.00 s")
    assert "volume" not in str(times)


def test_threads_lose_none() -> None:
    times = Times()

    def spend(_: int) -> None:
        with times.spend(DUMP):
            pass

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(spend, range(2000)))
    assert times[DUMP].samples == 2000


@pytest.mark.parametrize(
    ("engine", "volume", "slow"),
    [
        (QUICK, SLOW, True),
        (QUICK, QUICK, False),
        (SLOW, SLOW, True),
        (Spent(ENOUGH, ENOUGH * 4.0), SLOW, False),  # the engine is slower still
        (QUICK, Spent(ENOUGH - 1, ENOUGH * 3.0), False),  # too few to tell
        (Spent(), SLOW, True),  # all was adopted, nothing asked
    ],
)
def test_a_volume_is_called_slow_where_it_holds_the_engine_up(engine: Spent, volume: Spent, slow: bool) -> None:
    assert bool(complaint(engine, volume)) == slow


def test_the_complaint_has_both_figures() -> None:
    assert "takes 3.0 s, the engine's answer 0.1 s" in complaint(QUICK, SLOW)
