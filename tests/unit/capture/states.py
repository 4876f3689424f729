"""Captured states whose every value tells which layer, token and column it belongs to."""

from __future__ import annotations

from collections.abc import Callable

import torch

from hscapture.assemble import Dump
from hscapture.finite import finite_flags
from hscapture.rows import Piece, States, nothing
from hsqueue.contracts import CONTRACT_VERSION
from hsqueue.contracts.card import EngineCard

LAYERS = (2, 4, 5)
HIDDEN = 8


def make_card(norm: str = "post", dtype: str = "float32") -> EngineCard:
    return EngineCard(
        contract=CONTRACT_VERSION, instance="i1", model="models/tiny", weights="w", num_layers=8, hidden_size=HIDDEN,
        vocab_size=1000, context_length=4090, dtype=dtype, layers=LAYERS, layers_asked=LAYERS, layers_held=LAYERS,
        norm=norm, server="hsengine 0", host="127.0.0.1", port=1, pid=1, started=0.0, ranks={"tp": 1},
    )  # fmt: skip


def make_states(ids: list[int], norm: str = "post", dtype: torch.dtype = torch.float32) -> States:
    """Row of token i: ``id + layer/16`` in each column of a layer, ``id + 0.5`` last, ``id + 0.75`` before the norm."""
    tokens = torch.tensor(ids, dtype=torch.int64)
    column = tokens.to(dtype)[:, None]
    aux = torch.cat([(column + layer / 16).expand(-1, HIDDEN) for layer in LAYERS], dim=1)
    last = (column + 0.5).repeat(1, HIDDEN) if norm in ("post", "both") else None
    prenorm = (column + 0.75).repeat(1, HIDDEN) if norm in ("pre", "both") else None
    return States(tokens, aux, last, prenorm, finite_flags(aux, len(LAYERS), last, prenorm))


def make_piece(
    rid: str,
    ids: list[int],
    prefix_len: int = 0,
    last: bool = True,
    norm: str = "post",
    dtype: torch.dtype = torch.float32,
    release: Callable[[], None] = nothing,
) -> Piece:
    return Piece(rid, prefix_len, last, make_states(ids, norm, dtype), release=release)


def make_dump(rid: str, *chunks: list[int], norm: str = "post", dtype: torch.dtype = torch.float32) -> Dump:
    pieces, start = [], 0
    for chunk in chunks:
        pieces.append(make_piece(rid, chunk, start, last=False, norm=norm, dtype=dtype))
        start += len(chunk)
    return Dump(rid, 0, tuple(pieces))
