"""Which states hold NaN or infinity, found on the device that computed them and named for people."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from hsqueue.contracts.dump import AUX, LAST, LAST_PRENORM


def finite_flags(
    aux: torch.Tensor, layers: int, last: torch.Tensor | None, prenorm: torch.Tensor | None
) -> torch.Tensor:
    """Bool [T, layers + 1 or 2]: whether a row of each auxiliary layer, of `last`, of `prenorm` is finite.

    aux: [T, layers*H]. last, prenorm: [T, H] or None. Runs on the tensors' own device without a
    synchronisation; the result travels with the rows.
    """
    tokens = aux.shape[0]
    columns = [torch.isfinite(aux.view(tokens, layers, aux.shape[1] // layers)).all(-1)]
    columns += [torch.isfinite(t).all(-1, keepdim=True) for t in (last, prenorm) if t is not None]
    return torch.cat(columns, dim=1)


def column_names(layers: Sequence[int], norm: str) -> list[str]:
    """What the columns of ``finite_flags`` stand for; an auxiliary layer is named by its id."""
    names = [f"{AUX}[layer {layer}]" for layer in layers]
    if norm in ("post", "both"):
        names.append(LAST)
    if norm in ("pre", "both"):
        names.append(LAST_PRENORM)
    return names


def nonfinite(flags: Sequence[torch.Tensor], layers: Sequence[int], norm: str) -> tuple[str, ...]:
    """Names of the columns that are false in any row of any of a request's pieces."""
    if all(bool(piece.all()) for piece in flags):
        return ()
    names = column_names(layers, norm)
    good = torch.stack([piece.all(0) for piece in flags]).all(0)
    return tuple(name for name, fine in zip(names, good.tolist(), strict=True) if not fine)
