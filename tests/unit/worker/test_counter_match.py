"""A length picks a dump only while it is as good as a name."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hsworker.counter_match import Ambiguity, CounterMatcher

SETTLE, PATIENCE = 0.25, 10.0
LENGTHS = st.integers(2, 4)


def matcher(*stale: str) -> CounterMatcher:
    return CounterMatcher(set(stale), SETTLE, PATIENCE)


def announce(one: CounterMatcher, rid: str, tokens: int, now: float = 0.0) -> None:
    assert one.may_announce(tokens, now) is True
    one.announce(rid, tokens)


def test_the_only_dump_of_the_length_is_taken_once_it_has_settled() -> None:
    one = matcher()
    announce(one, "a", 7)
    assert one.choose("a", 0.0) is None
    one.appeared("req_0", 7, 1.0)
    assert one.choose("a", 1.0 + SETTLE - 0.01) is None
    assert one.choose("a", 1.0 + SETTLE) == "req_0"


def test_requests_of_different_lengths_go_at_once_and_of_one_length_in_turn() -> None:
    one = matcher()
    announce(one, "a", 7)
    announce(one, "b", 8)
    assert one.may_announce(7, 0.0) is False
    one.forget("a", 0.0, orphaned=False)
    assert one.may_announce(7, 0.0) is True


def test_two_dumps_for_one_request_are_ambiguous_and_the_length_rests() -> None:
    one = matcher()
    announce(one, "a", 7)
    one.appeared("req_0", 7, 1.0)
    one.appeared("req_1", 7, 1.1)
    assert isinstance(one.choose("a", 9.0), Ambiguity)
    one.forget("a", 9.0, orphaned=True)
    assert one.may_announce(7, 9.0 + PATIENCE - 0.01) is False
    assert one.may_announce(7, 9.0 + PATIENCE + 0.01) is True


def test_a_dump_that_nobody_asked_for_makes_its_length_rest() -> None:
    one = matcher()
    one.appeared("req_0", 7, 0.0)
    assert one.may_announce(7, PATIENCE - 0.01) is False
    assert one.may_announce(7, PATIENCE + 0.01) is True
    assert one.may_announce(8, 0.0) is True


def test_dumps_from_before_belong_to_nobody_and_spoil_no_length() -> None:
    one = matcher("req_0")
    assert not one.is_new("req_0")
    one.appeared("req_0", 7, 0.0)
    announce(one, "a", 7)
    assert one.choose("a", 9.0) is None


@pytest.mark.parametrize("tokens", [0, 1])
def test_a_prompt_as_short_as_a_health_check_is_ambiguous(tokens: int) -> None:
    assert isinstance(matcher().may_announce(tokens, 0.0), Ambiguity)


def test_health_checks_spoil_no_length_of_a_prompt() -> None:
    one = matcher()
    for number in range(5):
        one.appeared(f"req_{number}", 1, 0.0)
    announce(one, "a", 2)


def test_an_orphans_length_waits_until_its_dump_has_come_or_cannot_come() -> None:
    one = matcher()
    announce(one, "a", 7)
    one.forget("a", 0.0, orphaned=True)
    assert one.may_announce(7, PATIENCE - 0.01) is False
    one.appeared("req_0", 7, 5.0)
    assert one.may_announce(7, 5.0) is True
    announce(one, "b", 7)
    one.forget("b", 5.0, orphaned=True)
    assert one.may_announce(7, 5.0 + PATIENCE + 0.01) is True


def test_a_dump_counts_once() -> None:
    one = matcher()
    announce(one, "a", 7)
    one.appeared("req_0", 7, 0.0)
    one.appeared("req_0", 7, 0.1)
    assert one.choose("a", 9.0) == "req_0"


class HonestServer(RuleBasedStateMachine):
    """Makes one dump for a request that it accepted, at any time until the patience is over, or none if it failed;
    and dumps of one token for health checks."""

    def __init__(self) -> None:
        super().__init__()
        self.matcher = matcher()
        self.now = 0.0
        self.lengths: dict[str, int] = {}
        self.dumped: dict[str, str] = {}
        self.orphans: dict[str, tuple[int, float]] = {}
        self.count = 0

    def name(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    @rule(tokens=LENGTHS)
    def request(self, tokens: int) -> None:
        verdict = self.matcher.may_announce(tokens, self.now)
        assert not isinstance(verdict, Ambiguity), "an honest server never makes a length ambiguous"
        pending = any(n == tokens and self.now < end for n, end in self.orphans.values())
        assert verdict == (tokens not in self.lengths.values() and not pending)
        if verdict:
            rid = self.name("rid")
            self.matcher.announce(rid, tokens)
            self.lengths[rid] = tokens

    @precondition(lambda self: self.lengths.keys() - self.dumped.keys())
    @rule(data=st.data())
    def dump(self, data: st.DataObject) -> None:
        rid = data.draw(st.sampled_from(sorted(self.lengths.keys() - self.dumped.keys())))
        self.dumped[rid] = self.name("req_")
        self.matcher.appeared(self.dumped[rid], self.lengths[rid], self.now)

    @rule()
    def health_check(self) -> None:
        self.matcher.appeared(self.name("req_"), 1, self.now)

    @precondition(lambda self: self.lengths)
    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        rid = data.draw(st.sampled_from(sorted(self.lengths)))
        found = self.matcher.choose(rid, self.now)
        assert found is None or found == self.dumped[rid]
        if found is not None:
            self.matcher.forget(rid, self.now, orphaned=False)
            del self.lengths[rid], self.dumped[rid]

    @precondition(lambda self: self.lengths)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        """A timeout, an abort: its dump has come, is still to come, or never comes."""
        rid = data.draw(st.sampled_from(sorted(self.lengths)))
        self.matcher.forget(rid, self.now, orphaned=True)
        tokens = self.lengths.pop(rid)
        if self.dumped.pop(rid, None) is None:
            self.orphans[rid] = tokens, self.now + PATIENCE

    @precondition(lambda self: self.lengths.keys() - self.dumped.keys())
    @rule(data=st.data())
    def refuse(self, data: st.DataObject) -> None:
        """The server did not accept the request, so it makes no dump of it."""
        rid = data.draw(st.sampled_from(sorted(self.lengths.keys() - self.dumped.keys())))
        self.matcher.forget(rid, self.now, orphaned=False)
        del self.lengths[rid]

    @precondition(lambda self: any(self.now < end for _, end in self.orphans.values()))
    @rule(data=st.data())
    def dump_late(self, data: st.DataObject) -> None:
        rid = data.draw(st.sampled_from(sorted(r for r, (_, end) in self.orphans.items() if self.now < end)))
        self.matcher.appeared(self.name("req_"), self.orphans.pop(rid)[0], self.now)

    @rule(seconds=st.sampled_from([0.01, SETTLE, PATIENCE / 2, PATIENCE]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def every_dump_that_came_can_be_taken(self) -> None:
        for rid, identity in self.dumped.items():
            assert self.matcher.choose(rid, self.now + SETTLE + 1e-6) == identity


class SharedServer(RuleBasedStateMachine):
    """Others use the server as well, with prompts of any length."""

    def __init__(self) -> None:
        super().__init__()
        self.matcher = matcher()
        self.now = 0.0
        self.lengths: dict[str, int] = {}
        self.came: dict[str, list[str]] = {}
        self.resting: dict[int, float] = {}
        self.count = 0

    @rule(tokens=LENGTHS)
    def request(self, tokens: int) -> None:
        verdict = self.matcher.may_announce(tokens, self.now)
        assert not isinstance(verdict, Ambiguity)
        if self.now < self.resting.get(tokens, 0.0):
            assert verdict is False, "a length of which others made a dump rests"
        if verdict is True:
            self.count += 1
            rid = f"rid{self.count}"
            self.matcher.announce(rid, tokens)
            self.lengths[rid], self.came[rid] = tokens, []

    @rule(tokens=LENGTHS)
    def dump(self, tokens: int) -> None:
        """Nobody can say whose it is."""
        self.count += 1
        self.matcher.appeared(f"req_{self.count}", tokens, self.now)
        waiting = [rid for rid, n in self.lengths.items() if n == tokens]
        for rid in waiting:
            self.came[rid].append(f"req_{self.count}")
        if not waiting:
            self.resting[tokens] = self.now + PATIENCE

    @precondition(lambda self: self.lengths)
    @rule(data=st.data(), seconds=st.sampled_from([0.0, SETTLE / 2, SETTLE]))
    def take(self, data: st.DataObject, seconds: float) -> None:
        self.now += seconds
        rid = data.draw(st.sampled_from(sorted(self.lengths)))
        found = self.matcher.choose(rid, self.now)
        came = self.came[rid]
        if len(came) > 1:
            assert isinstance(found, Ambiguity), "of two dumps none may be guessed"
            self.resting[self.lengths[rid]] = self.now + PATIENCE
        else:
            assert found is None or [found] == came
        if found is not None:
            self.matcher.forget(rid, self.now, orphaned=not isinstance(found, str))
            del self.lengths[rid]


for machine in (HonestServer, SharedServer):
    machine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestHonestServer = HonestServer.TestCase
TestSharedServer = SharedServer.TestCase
