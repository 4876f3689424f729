from __future__ import annotations

import gc
import logging

import pytest
import torch

from hscapture.assemble import Dump
from hscapture.complaints import Complaints
from hscapture.sglang.forward import Recipe
from hscapture.sglang.pool import BufferPool, host_memory
from hscapture.sglang.session import Session
from hscapture.sglang.stage import Stager
from hscapture.sglang.taps import Tap
from tests.unit.capture.sglang.fakes import FakeBatch, FakeRequest, batch_of

WIDTH = 4


class Engine:
    """Forward passes in which every state of a token is its id, or so many more."""

    def __init__(self, layers: tuple[int, ...] = (2, 5), norm: str = "post", scale: float | None = None) -> None:
        self.dumps: list[Dump] = []
        self.pool = BufferPool(host_memory(False), 1 << 30)
        self.recipe = Recipe(layers, 8, norm, scale, Tap(), Tap())
        stager = Stager(torch.device("cpu"), self.pool)
        self.discarded: list[str] = []
        self.session = Session(
            self.recipe,
            stager,
            lambda rid: rid.startswith("hsq."),
            self.dumps.append,
            self.discarded.append,
            Complaints(),
        )

    def run(self, batch: FakeBatch, padding: int = 0, aux: bool = True, tapped: bool = True) -> None:
        self.session.begin(batch)
        rows = zip(batch.reqs, batch.prefix_lens, batch.extend_lens, strict=True)
        ids = [token for r, p, n in rows for token in (r.origin_input_ids + r.output_ids)[p : p + n]] + [0] * padding
        tokens = torch.tensor(ids)
        if tapped:
            self.recipe.first.keep(self.state(tokens, 0.0), None)
            self.recipe.final.keep(self.state(tokens, 8.0), None)
        inner = [self.state(tokens, float(k)) for k in self.recipe.layers if 0 < k < 8]
        self.session.observe(tokens, self.state(tokens, 100.0), inner if aux else None)
        tokens.zero_()
        self.session.collect(batch, self.session.end())

    @staticmethod
    def state(tokens: torch.Tensor, more: float) -> torch.Tensor:
        return (tokens + more).float()[:, None].repeat(1, WIDTH)

    def give_back(self) -> None:
        for dump in self.dumps:
            dump.release()
        self.dumps.clear()


def ids_of(dump: Dump) -> list[int]:
    return [token for piece in dump.pieces for token in piece.states.input_ids.tolist()]


def test_a_batch_with_strangers_gives_each_of_ours_its_rows() -> None:
    engine = Engine()
    engine.run(
        batch_of(FakeRequest("x", [1]), FakeRequest("hsq.a", [2, 3]), FakeRequest("y", [4]), FakeRequest("hsq.b", [5]))
    )
    assert {dump.rid: ids_of(dump) for dump in engine.dumps} == {"hsq.a": [2, 3], "hsq.b": [5]}
    (piece,) = engine.dumps[0].pieces
    assert piece.states.aux.tolist() == [[4.0] * WIDTH + [7.0] * WIDTH, [5.0] * WIDTH + [8.0] * WIDTH]
    assert piece.states.last is not None
    assert piece.states.last[:, 0].tolist() == [102.0, 103.0]
    assert piece.states.finite.shape == (2, 3)


def test_padding_is_not_captured() -> None:
    engine = Engine()
    engine.run(batch_of(FakeRequest("hsq.a", [2, 3])), padding=6)
    assert ids_of(engine.dumps[0]) == [2, 3]


def test_all_layers_and_both_norms() -> None:
    engine = Engine(layers=tuple(range(9)), norm="both")
    engine.run(batch_of(FakeRequest("hsq.a", [10])))
    (piece,) = engine.dumps[0].pieces
    assert piece.states.aux[0, ::WIDTH].tolist() == [10.0 + k for k in range(9)]
    assert piece.states.prenorm is not None
    assert piece.states.prenorm[0, 0] == 18.0


def test_a_head_that_scales_is_undone() -> None:
    engine = Engine(scale=4.0)
    engine.run(batch_of(FakeRequest("hsq.a", [10])))
    last = engine.dumps[0].pieces[0].states.last
    assert last is not None
    assert last[0, 0] == 440.0


def test_chunks_are_stitched() -> None:
    engine = Engine()
    request = FakeRequest("hsq.a", [1, 2, 3, 4, 5])
    engine.run(FakeBatch([request], [3], [0]))
    assert engine.dumps == []
    assert engine.session.held > 0
    engine.run(FakeBatch([request], [2], [3]))
    assert ids_of(engine.dumps[0]) == [1, 2, 3, 4, 5]
    assert engine.dumps[0].chunks == (3, 2)
    assert engine.session.held == 0


@pytest.mark.parametrize("gone", ["aborted", "freed"])
def test_a_request_that_ends_between_its_chunks_leaves_nothing(gone: str) -> None:
    engine = Engine()
    request = FakeRequest("hsq.a", [1, 2, 3, 4, 5])
    engine.run(FakeBatch([request], [3], [0]))
    request.to_finish = "abort" if gone == "aborted" else None
    if gone == "freed":
        del request
        gc.collect()
    engine.run(batch_of(FakeRequest("HEALTH_CHECK", [1])))
    assert engine.session.held == 0
    assert engine.pool.free_bytes > 0
    assert engine.dumps == []


@pytest.mark.parametrize(("rid", "everything", "kept"), [("hsq.a", False, 1), ("hsq.", False, 0), ("", True, 0)])
def test_an_abort_frees_the_chunks_at_once(rid: str, everything: bool, kept: int) -> None:
    engine = Engine()
    requests = [FakeRequest(name, [1, 2, 3]) for name in ("hsq.a", "hsq.b")]
    engine.run(FakeBatch(requests, [2, 2], [0, 0]))
    engine.session.abort(rid, everything)
    assert engine.session.held == kept * (2 * 8 + 2 * 3 * WIDTH * 4)
    assert engine.discarded == ([] if everything else [rid])


def test_an_abort_of_strangers_is_none_of_ours() -> None:
    engine = Engine()
    engine.session.abort("chatcmpl-1", False)
    assert engine.discarded == []


def test_a_request_aborted_while_it_runs_makes_no_dump() -> None:
    engine = Engine()
    request = FakeRequest("hsq.a", [1, 2])
    batch = batch_of(request)
    engine.session.begin(batch)
    tokens = torch.tensor([1, 2])
    engine.session.observe(tokens, engine.state(tokens, 0), [engine.state(tokens, k) for k in (2, 5)])
    request.to_finish = "abort"
    engine.session.collect(batch, engine.session.end())
    assert engine.dumps == []
    assert engine.pool.free_bytes > 0


def test_a_restarted_request_makes_one_dump_of_its_second_life() -> None:
    engine = Engine()
    request = FakeRequest("hsq.a", [1, 2, 3, 4])
    engine.run(FakeBatch([request], [3], [0]))
    engine.run(FakeBatch([request], [2], [0]))
    engine.run(FakeBatch([request], [2], [2]))
    assert [(ids_of(dump), dump.chunks) for dump in engine.dumps] == [([1, 2, 3, 4], (2, 2))]
    assert engine.session.held == 0


def test_buffers_come_back_and_are_used_again() -> None:
    engine = Engine()
    for _ in range(5):
        engine.run(batch_of(FakeRequest("hsq.a", [1]), FakeRequest("hsq.b", [2])))
        engine.give_back()
    assert engine.pool.free_bytes == 1 << 20


@pytest.mark.parametrize(
    ("layers", "pass_", "said"),
    [
        ((2, 5), {"aux": False}, "without its auxiliary states"),
        ((0, 2), {"tapped": False}, "did not show the states of layer 0"),
    ],
)
def test_a_pass_that_hides_its_states_makes_no_dump_and_one_line(
    layers: tuple[int, ...], pass_: dict[str, bool], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    engine = Engine(layers)
    with caplog.at_level(logging.ERROR):
        for rid in ("hsq.a", "hsq.b"):
            engine.run(batch_of(FakeRequest(rid, [1, 2])), **pass_)
    assert engine.dumps == []
    assert [said in record.getMessage() for record in caplog.records] == [True]


def test_a_pass_that_never_reaches_the_logits_makes_no_dump(caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine()
    batch = batch_of(FakeRequest("hsq.a", [1]))
    engine.session.begin(batch)
    engine.session.collect(batch, engine.session.end())
    assert engine.dumps == []
    assert "CUDA graphs" in caplog.text


def test_logits_computed_twice_in_a_pass_make_no_dump(caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine()
    batch, tokens = batch_of(FakeRequest("hsq.a", [1])), torch.tensor([1])
    engine.session.begin(batch)
    for _ in range(2):
        engine.session.observe(tokens, engine.state(tokens, 0), [engine.state(tokens, k) for k in (2, 5)])
    engine.session.collect(batch, engine.session.end())
    assert engine.dumps == []
    assert "twice" in caplog.text
    assert engine.pool.free_bytes > 0


def test_passes_of_strangers_are_not_looked_at() -> None:
    engine = Engine()
    engine.run(batch_of(FakeRequest("HEALTH_CHECK", [1])), aux=False)
    assert engine.pool.free_bytes == 0
    assert engine.session.end() == []
