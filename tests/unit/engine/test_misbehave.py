from __future__ import annotations

from typing import Any

import pytest

from hsengine.misbehave import Dice, Misbehaviour, Mischief, parse_misbehaviour
from hsengine.request import Request
from hsqueue.contracts.errors import UsageError


def requests(count: int, extra_key: str | None = None) -> list[Request]:
    return [Request(f"hsq.r.{k}.1.0", list(range(k + 2)), extra_key=extra_key) for k in range(count)]


def test_json_names_fields() -> None:
    text = '{"seed": 3, "abort": 0.5, "late": 2, "poison": [1, 2], "warmup": true}'
    assert parse_misbehaviour(text) == Misbehaviour(seed=3, abort=0.5, late=2.0, poison=(1, 2), warmup=True)
    assert parse_misbehaviour("{}") == Misbehaviour()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not JSON"),
        ("[]", "JSON object"),
        ('{"arbot": 1}', "unknown trouble.*found arbot"),
        ('{"abort": "yes"}', "abort must be of type float"),
        ('{"abort": true}', "abort must be of type float"),
        ('{"warmup": 1}', "warmup must be of type bool"),
        ('{"stale_dumps": 1.5}', "stale_dumps must be of type int"),
        ('{"poison": ["a"]}', "poison must be of type tuple"),
    ],
)
def test_wrong_json_is_named(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        parse_misbehaviour(text)


def test_fate_depends_on_seed_kind_and_rid_only() -> None:
    def fates(seed: int, kind: str) -> list[bool]:
        return [Dice(seed).hits(kind, request.rid, 0.3) for request in requests(200)]

    assert fates(1, "abort") == fates(1, "abort")
    assert fates(1, "abort") != fates(2, "abort")
    assert fates(1, "abort") != fates(1, "swap")
    assert 30 < sum(fates(1, "abort")) < 90


def test_a_good_engine_does_nothing_of_all_this() -> None:
    mischief = Mischief(Misbehaviour())
    queue = requests(50)
    mischief.reorder(queue)
    for number, request in enumerate(queue):
        mischief.cut(request)
        assert request.rid == f"hsq.r.{number}.1.0"
        assert request.input_ids == list(range(number + 2))
        assert not mischief.aborts(request)
        assert not mischief.kills(request)
        assert not mischief.unavailable(request.rid)
        assert mischief.cached_tokens(request) == 0
        assert mischief.response_delay(request.rid) == 0
        assert mischief.chunk(1024) == 1024


@pytest.mark.parametrize(
    ("plan", "extra_key", "hit"),
    [
        (Misbehaviour(radix=1.0), None, True),
        (Misbehaviour(radix=1.0), "k", False),
        (Misbehaviour(radix=1.0, radix_always=True), "k", True),
    ],
)
def test_an_extra_key_keeps_prefixes_apart(plan: Misbehaviour, extra_key: str | None, hit: bool) -> None:
    mischief = Mischief(plan)
    for request in requests(50, extra_key):
        cached = mischief.cached_tokens(request)
        assert 0 <= cached < len(request.input_ids)
        assert (cached > 0) is hit


def test_poison_and_age_kill() -> None:
    poisoned = Mischief(Misbehaviour(poison=(0, 1, 2)))
    assert [poisoned.kills(request) for request in requests(3)] == [False, True, True]
    aged = Mischief(Misbehaviour(die_after=3))
    assert [aged.kills(request) for request in requests(4)] == [False, False, True, False]


def test_pieces_are_odd_down_to_one_token() -> None:
    mischief = Mischief(Misbehaviour(odd_chunks=True))
    sizes = [mischief.chunk(64) for _ in range(500)]
    assert set(sizes) >= {1, 2, 3, 64}
    assert max(sizes) == 64


def test_the_queue_is_shuffled_and_loses_nobody() -> None:
    queue = requests(30)
    shuffled = list(queue)
    Mischief(Misbehaviour(reorder=True)).reorder(shuffled)
    assert shuffled != queue
    assert {id(r) for r in shuffled} == {id(r) for r in queue}


def test_responses_about_others() -> None:
    body: dict[str, Any] = {"text": "", "meta_info": {"id": "hsq.r.1.2.0", "prompt_tokens": 5}}
    assert Mischief(Misbehaviour()).answer(body) == body
    other = Mischief(Misbehaviour(wrong_id=1.0)).answer(body)["meta_info"]
    assert other["id"] != "hsq.r.1.2.0"
    assert other["prompt_tokens"] == 5


def test_a_silent_cut_takes_the_last_token() -> None:
    request = Request("a", [1, 2, 3])
    Mischief(Misbehaviour(cut=1.0)).cut(request)
    assert request.input_ids == [1, 2]
