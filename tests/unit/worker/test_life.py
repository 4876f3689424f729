"""Every transition of a worker's life, and what holds along every path of them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsworker.life import Action, Life, Pause, Seen, State

ENGINE = Pause("engine", "", "the engine is gone")
VOLUME = Pause("volume", "/run", "the volume is full")
SERVING, PAUSED, STOPPING = Life(), Life(State.PAUSED, ENGINE), Life(State.STOPPING)
PAUSE = (Action.TELL,)
RESUME = (Action.CLEAR_PAUSE, Action.TELL)

TRANSITIONS = [
    (SERVING, Seen(), SERVING, ()),
    (SERVING, Seen(pause=ENGINE), PAUSED, PAUSE),
    (SERVING, Seen(pause=ENGINE, recovered=True), PAUSED, PAUSE),
    (SERVING, Seen(stopping=True), STOPPING, (Action.TELL,)),
    (SERVING, Seen(pause=ENGINE, stopping=True), STOPPING, (Action.TELL,)),
    (PAUSED, Seen(pause=ENGINE), PAUSED, ()),
    (PAUSED, Seen(pause=VOLUME), Life(State.PAUSED, VOLUME), (Action.TELL,)),
    (PAUSED, Seen(pause=ENGINE, recovered=True), SERVING, RESUME),
    (PAUSED, Seen(), SERVING, (Action.TELL,)),
    (PAUSED, Seen(pause=ENGINE, recovered=True, stopping=True), STOPPING, (Action.TELL,)),
    (STOPPING, Seen(), STOPPING, ()),
    (STOPPING, Seen(pause=ENGINE), STOPPING, ()),
    (STOPPING, Seen(pause=ENGINE, recovered=True), STOPPING, ()),
    (STOPPING, Seen(stopping=True), STOPPING, ()),
]

LOOKS = st.lists(
    st.builds(
        Seen, pause=st.sampled_from([None, ENGINE, VOLUME]), recovered=st.booleans(),
        stopping=st.sampled_from([False] * 9 + [True]),
    )
)  # fmt: skip


@pytest.mark.parametrize(("life", "seen", "after", "actions"), TRANSITIONS)
def test_a_transition(life: Life, seen: Seen, after: Life, actions: tuple[Action, ...]) -> None:
    assert life.next(seen) == (after, actions)


def test_every_state_meets_everything_that_can_be_seen() -> None:
    for life, pause, recovered, stopping in itertools.product(
        (SERVING, PAUSED, STOPPING), (None, ENGINE, VOLUME), (False, True), (False, True)
    ):
        after, _ = life.next(Seen(pause, recovered, stopping))
        assert (after.pause is not None) == (after.state is State.PAUSED)


def test_a_worker_takes_messages_only_while_it_serves() -> None:
    assert [life.consumes for life in (SERVING, PAUSED, STOPPING)] == [True, False, False]


@given(LOOKS)
def test_nothing_follows_stopping(looks: list[Seen]) -> None:
    life = STOPPING
    for seen in looks:
        assert life.next(seen) == (STOPPING, ())


@given(LOOKS)
def test_people_are_told_of_every_change(looks: list[Seen]) -> None:
    life = Life()
    for seen in looks:
        after, actions = life.next(seen)
        assert (Action.TELL in actions) == (after != life)
        life = after
