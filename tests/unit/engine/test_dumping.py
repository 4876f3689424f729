from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from hscapture.assemble import Dump
from hscapture.legacy import Form
from hscapture.ridlayout import RidLayout
from hsengine.dumping import (
    DumpMischief,
    TornCounterLayout,
    TornRidLayout,
    leave_stale_dumps,
    submit_late,
)
from hsengine.misbehave import Misbehaviour
from hsqueue.contracts.errors import DumpMalformed
from hsqueue.contracts.rid import parse_rid
from hsqueue.contracts.tensorfile import parse_header
from tests.unit.capture.states import LAYERS, make_card, make_dump

WAIT = 10.0


def passed_on(plan: Misbehaviour, *dumps: Dump) -> list[Dump]:
    found: list[Dump] = []
    mischief = DumpMischief(found.append, plan)
    for dump in dumps:
        mischief.write(dump)
    return found


def ids(dump: Dump) -> list[int]:
    return [token for piece in dump.pieces for token in piece.states.input_ids.tolist()]


def test_a_good_engine_passes_dumps_on_untouched() -> None:
    dumps = [make_dump("a", [1, 2], [3]), make_dump("b", [4])]
    assert passed_on(Misbehaviour(), *dumps) == dumps


def test_a_swapped_dump_has_the_states_of_the_one_before() -> None:
    first, second = passed_on(Misbehaviour(swap=1.0), make_dump("a", [1, 2]), make_dump("b", [3, 4]))
    assert (first.rid, ids(first)) == ("a", [1, 2])
    assert (second.rid, ids(second)) == ("b", [1, 2])


def test_a_shifted_dump_is_off_by_one_row_in_everything() -> None:
    (found,) = passed_on(Misbehaviour(shift=1.0), make_dump("a", [1, 2, 3]))
    assert ids(found) == [3, 1, 2]
    assert found.pieces[0].states.aux[:, 0].tolist() == [3 + 2 / 16, 1 + 2 / 16, 2 + 2 / 16]


def test_a_lost_dump_is_not_passed_on() -> None:
    assert passed_on(Misbehaviour(lost=1.0), make_dump("a", [1])) == []


@pytest.mark.parametrize("seed", range(8))
def test_a_nan_is_where_the_flags_say(seed: int) -> None:
    original = make_dump("a", [1, 2], [3, 4, 5], norm="both")
    (found,) = passed_on(Misbehaviour(seed=seed, nan=1.0), original)
    aux = torch.cat([piece.states.aux for piece in found.pieces])
    flags = torch.cat([piece.states.finite for piece in found.pieces])
    assert torch.isnan(aux).sum() == 1
    assert torch.equal(flags[:, : len(LAYERS)], torch.isfinite(aux.view(5, len(LAYERS), -1)).all(-1))
    assert not any(torch.isnan(piece.states.aux).any() for piece in original.pieces)


def test_a_torn_file_is_shorter_than_its_header_says(tmp_path: Path) -> None:
    TornRidLayout(tmp_path, make_card(), None, 0, Misbehaviour(torn=1.0, seed=1)).write(make_dump("a", [1, 2, 3]))
    RidLayout(tmp_path, make_card()).write(make_dump("b", [1, 2, 3]))
    torn, whole = (tmp_path / f"req_{rid}" / "hidden.safetensors" for rid in ("a", "b"))
    assert whole.read_bytes().startswith(torn.read_bytes()[:8])
    assert torn.stat().st_size < parse_header(whole.read_bytes()).file_bytes


@pytest.mark.parametrize("form", list(Form))
def test_a_torn_counter_dump_still_has_its_meta(tmp_path: Path, form: Form) -> None:
    TornCounterLayout(tmp_path / "torn", form, Misbehaviour(torn=1.0)).write(make_dump("a", [1, 2, 3]))
    TornCounterLayout(tmp_path / "whole", form, Misbehaviour()).write(make_dump("a", [1, 2, 3]))

    def size(directory: Path) -> int:
        return sum(path.stat().st_size for path in directory.glob("req_0/hidden_states.*")) + sum(
            path.stat().st_size for path in directory.glob("req_0/*_state*.pt")
        )

    assert size(tmp_path / "torn") < size(tmp_path / "whole")
    assert json.loads((tmp_path / "torn" / "req_0" / "meta.json").read_text())["num_tokens"] == 3


@pytest.mark.parametrize(("recount", "names"), [(False, {"req_0", "req_1"}), (True, {"req_0"})])
def test_a_restarted_engine_counts_on_or_from_zero(tmp_path: Path, recount: bool, names: set[str]) -> None:
    for tokens in ([1, 2, 3], [4]):
        TornCounterLayout(tmp_path, Form.PT, Misbehaviour(recount=recount)).write(make_dump("a", tokens))
    assert {path.name for path in tmp_path.iterdir()} == names
    assert json.loads((tmp_path / max(names) / "meta.json").read_text())["num_tokens"] == 1


def test_late_dumps_come_after_the_call_and_on_time_ones_within_it() -> None:
    arrived: list[str] = []
    event = threading.Event()

    def submit(dump: Dump) -> None:
        arrived.append(threading.current_thread().name)
        event.set()

    submit_late(submit, Misbehaviour())(make_dump("a", [1]))
    assert arrived == [threading.current_thread().name]
    event.clear()
    submit_late(submit, Misbehaviour(late=0.05))(make_dump("a", [1]))
    assert event.wait(WAIT)
    assert arrived[1] != threading.current_thread().name


@pytest.mark.parametrize("norm", ["post", "pre", "both"])
def test_stale_dumps_are_well_formed_and_of_the_lengths_asked_for(tmp_path: Path, norm: str) -> None:
    card = make_card(norm, "bfloat16")
    plan = Misbehaviour(stale_dumps=5, stale_lengths=(7, 9))
    leave_stale_dumps(RidLayout(tmp_path, card).write, card, plan)
    files = list(tmp_path.glob("req_*/hidden.safetensors"))
    headers = [parse_header(file.read_bytes()) for file in files]
    assert sorted(int(header.metadata["num_tokens"]) for header in headers) == [7, 7, 7, 9, 9]
    assert all(parse_rid(header.metadata["rid"]) for header in headers)
    assert all(header.metadata["nonfinite"] == "[]" for header in headers)


def test_mischief_does_not_hide_what_a_layout_refuses() -> None:
    def refuse(dump: Dump) -> None:
        raise DumpMalformed("no")

    write: Callable[[Dump], None] = DumpMischief(refuse, Misbehaviour()).write
    with pytest.raises(DumpMalformed):
        write(make_dump("a", [1]))
