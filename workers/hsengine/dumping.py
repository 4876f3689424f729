"""From a whole dump to the dump directory: the layout asked for, and the trouble asked for."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from hscapture.assemble import Dump
from hscapture.legacy import CounterLayout, Form, next_counter
from hscapture.ridlayout import RidLayout
from hscapture.rows import Piece, States
from hsengine.misbehave import Dice, Misbehaviour
from hsqueue.contracts.card import EngineCard
from hsqueue.contracts.rid import RequestId


class TornRidLayout(RidLayout):
    """Cuts some dumps short before they become visible."""

    def __init__(self, directory: Path, card: EngineCard, limit: int | None, wait: float, plan: Misbehaviour) -> None:
        super().__init__(directory, card, limit, wait)
        self._plan, self._dice = plan, Dice(plan.seed)

    def buffers(self, dump: Dump) -> list[memoryview]:
        whole = super().buffers(dump)
        if not self._dice.hits("torn", dump.rid, self._plan.torn):
            return whole
        content = b"".join(whole)
        return [memoryview(content)[: self._dice.roll("torn at", dump.rid).randrange(len(content))]]


class TornCounterLayout(CounterLayout):
    """Cuts some dumps short; their ``meta.json`` is as it should be."""

    def __init__(self, directory: Path, form: Form, plan: Misbehaviour) -> None:
        super().__init__(directory, form, 0 if plan.recount else next_counter(directory))
        self._plan, self._dice = plan, Dice(plan.seed)

    def write_meta(self, target: Path, dump: Dump) -> None:
        if self._dice.hits("torn", dump.rid, self._plan.torn):
            states = min(target.iterdir())
            with states.open("r+b") as file:
                file.truncate(self._dice.roll("torn at", dump.rid).randrange(states.stat().st_size))
        super().write_meta(target, dump)


class DumpMischief:
    """Stands before a layout's ``write`` and hands it altered dumps."""

    def __init__(self, write: Callable[[Dump], None], plan: Misbehaviour) -> None:
        self._write, self._plan, self._dice = write, plan, Dice(plan.seed)
        self._previous: Dump | None = None
        self._lock = threading.Lock()

    def write(self, dump: Dump) -> None:
        with self._lock:
            previous, self._previous = self._previous, dump
        if self._dice.hits("lost", dump.rid, self._plan.lost):
            return
        if previous is not None and self._dice.hits("swap", dump.rid, self._plan.swap):
            dump = replace(previous, rid=dump.rid)
        if self._dice.hits("shift", dump.rid, self._plan.shift):
            dump = shifted(dump)
        if self._dice.hits("nan", dump.rid, self._plan.nan):
            dump = with_nan(dump, self._dice.roll("nan at", dump.rid))
        self._write(dump)


def shifted(dump: Dump) -> Dump:
    """All rows, token ids included, from one row before the request's own."""

    def shift(states: States) -> States:
        return _mapped(states, lambda t: torch.roll(t, 1, dims=0))

    return replace(dump, pieces=tuple(replace(p, states=shift(p.states)) for p in dump.pieces))


def with_nan(dump: Dump, chance: random.Random) -> Dump:
    """One value of one auxiliary state is NaN, and the flags say so as a device's check would."""
    number = chance.randrange(len(dump.pieces))
    states = dump.pieces[number].states
    row, column = chance.randrange(states.tokens), chance.randrange(states.aux.shape[1])
    layers = states.finite.shape[1] - sum(t is not None for t in (states.last, states.prenorm))
    aux, finite = states.aux.clone(), states.finite.clone()
    aux[row, column] = float("nan")
    finite[row, column * layers // states.aux.shape[1]] = False
    pieces = list(dump.pieces)
    pieces[number] = replace(pieces[number], states=replace(states, aux=aux, finite=finite))
    return replace(dump, pieces=tuple(pieces))


def _mapped(states: States, function: Callable[[torch.Tensor], torch.Tensor]) -> States:
    return States(
        function(states.input_ids),
        function(states.aux),
        None if states.last is None else function(states.last),
        None if states.prenorm is None else function(states.prenorm),
        function(states.finite),
    )


def submit_late(submit: Callable[[Dump], None], plan: Misbehaviour) -> Callable[[Dump], None]:
    """`submit`, or one that calls it some time later for each dump."""
    if plan.late <= 0:
        return submit
    dice = Dice(plan.seed)

    def later(dump: Dump) -> None:
        timer = threading.Timer(dice.seconds("late", dump.rid, plan.late), submit, (dump,))
        timer.daemon = True
        timer.start()

    return later


def leave_stale_dumps(write: Callable[[Dump], None], card: EngineCard, plan: Misbehaviour) -> None:
    """What former runs left behind: random states under names and with lengths that look right."""
    chance = Dice(plan.seed).roll("stale", "")
    lengths: Sequence[int] = plan.stale_lengths or [chance.randint(1, 300) for _ in range(plan.stale_dumps)]
    for index in range(plan.stale_dumps):
        rid = RequestId("former-run", index, int(card.started * 1000), 0)
        states = random_states(lengths[index % len(lengths)], card, chance.getrandbits(32))
        write(Dump(str(rid), 0, (Piece(str(rid), 0, True, states),)))


def random_states(tokens: int, card: EngineCard, seed: int) -> States:
    """States of no model, of the shape and dtype that the card promises."""
    generator = torch.Generator().manual_seed(seed)
    dtype, layers, hidden = getattr(torch, card.dtype), len(card.layers), card.hidden_size
    norms = 2 if card.norm == "both" else 1

    def noise(width: int) -> torch.Tensor:
        return torch.randn(tokens, width, generator=generator).to(dtype)

    return States(
        torch.randint(0, card.vocab_size, (tokens,), generator=generator),
        noise(layers * hidden),
        noise(hidden) if card.norm in ("post", "both") else None,
        noise(hidden) if card.norm in ("pre", "both") else None,
        torch.ones(tokens, layers + norms, dtype=torch.bool),
    )
