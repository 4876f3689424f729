"""Published states against a lone forward pass of the same weights by transformers: the last word on rightness."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hsqueue.contracts.dump import AUX, INPUT_IDS, LAST, LAST_PRENORM
from hsqueue.contracts.errors import DependencyMissing, NothingToDo
from hsqueue.contracts.fingerprint import RunInfo
from hsqueue.store.layout import RunLayout


@dataclass(frozen=True, slots=True)
class Difference:
    """samples: compared. aux, last: largest absolute differences. exact: samples without any."""

    samples: int
    aux: float
    last: float
    exact: int

    @property
    def largest(self) -> float:
        return max(self.aux, self.last)

    def __str__(self) -> str:
        return (
            f"largest difference {self.aux:.3g} in the auxiliary layers, {self.last:.3g} in the last; "
            f"{self.exact} of {self.samples} without any"
        )


def recompute(layout: RunLayout, info: RunInfo, model: Path, count: int) -> Difference:
    """Compares `count` samples, spread evenly over the run, or all for 0, in the run's dtype on the CPU.

    Raises NothingToDo where no file is there, DependencyMissing.
    """
    try:
        import torch
        from safetensors.torch import load_file
        from transformers import AutoModelForCausalLM
    except ImportError as error:
        raise DependencyMissing(f"recomputing needs {error.name}", do="Run pip install 'hsqueue[engine]'.") from None
    target = info.fingerprint.target
    network: Any = AutoModelForCausalLM.from_pretrained(
        model, dtype=getattr(torch, target.dtype), attn_implementation="sdpa", local_files_only=True
    ).eval()
    before: list[Any] = [None]
    network.get_decoder().norm.register_forward_pre_hook(lambda _, args: before.__setitem__(0, args[0]))
    aux = last = 0.0
    samples = exact = 0
    for index in _chosen(info.samples, count):
        path = layout.sample(index // info.fingerprint.shard_size, index)
        if not path.exists():
            continue
        stored = load_file(path)
        with torch.inference_mode():
            out = network(stored[INPUT_IDS].unsqueeze(0), output_hidden_states=True, use_cache=False)
        states = out.hidden_states
        # The last of transformers' states is behind the final norm; the last layer's own output is before it.
        expected = torch.cat([(states[k] if k < len(states) - 1 else before[0])[0] for k in target.layers], dim=-1)
        here = float((stored[AUX] - expected).abs().max())
        there = float((stored[LAST] - states[-1][0]).abs().max()) if LAST in stored else 0.0
        if LAST_PRENORM in stored:
            there = max(there, float((stored[LAST_PRENORM] - before[0][0]).abs().max()))
        samples, exact = samples + 1, exact + (here == there == 0.0)
        aux, last = max(aux, here), max(last, there)
    if not samples:
        raise NothingToDo("no published file to recompute", do="Run hsqueue status to see how far the run is.")
    return Difference(samples, aux, last, exact)


def _chosen(total: int, count: int) -> list[int]:
    if count <= 0 or count >= total:
        return list(range(total))
    return sorted({i * total // count for i in range(count)})
