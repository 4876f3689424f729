"""Published states against a lone forward pass of the same weights by transformers: the last word on rightness."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from math import inf, isnan
from pathlib import Path
from typing import Any

from hsqueue.contracts.dump import AUX, INPUT_IDS, LAST, LAST_PRENORM
from hsqueue.contracts.errors import DependencyMissing, NothingToDo
from hsqueue.contracts.fingerprint import RunInfo
from hsqueue.store.layout import RunLayout
from hsqueue.store.verify import Finding


@dataclass(frozen=True, slots=True)
class Difference:
    """each: of every compared sample, its index and its largest absolute differences in the auxiliary layers and
    in the last; NaN counts as infinite.
    """

    each: tuple[tuple[int, float, float], ...]

    @property
    def samples(self) -> int:
        return len(self.each)

    @property
    def exact(self) -> int:
        """Samples without any difference."""
        return sum(aux == last == 0.0 for _, aux, last in self.each)

    @property
    def aux(self) -> float:
        return max(aux for _, aux, _ in self.each)

    @property
    def last(self) -> float:
        return max(last for _, _, last in self.each)

    @property
    def largest(self) -> float:
        return max(self.aux, self.last)

    def findings(self, layout: RunLayout, info: RunInfo, tolerance: float) -> tuple[Finding, ...]:
        """Samples that differ by more than `tolerance`: states of another prompt, or of another model."""
        found = []
        for index, aux, last in self.each:
            if max(aux, last) > tolerance:
                shard = index // info.fingerprint.shard_size
                problem = f"its states differ from the model's by {max(aux, last):.3g}"
                found.append(Finding(shard, index, problem, layout.sample(shard, index), "sample"))
        return tuple(found)

    def __str__(self) -> str:
        return (
            f"largest difference {self.aux:.3g} in the auxiliary layers, {self.last:.3g} in the last; "
            f"{self.exact} of {self.samples} without any"
        )


def recompute(layout: RunLayout, info: RunInfo, model: Path, count: int, wrong: Set[int] = frozenset()) -> Difference:
    """Compares `count` samples, spread evenly over the run, or all for 0, in the run's dtype on the CPU.

    wrong: indices of samples that are known to be damaged, and are left out.
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
    each = []
    for index in _chosen(info.samples, count):
        path = layout.sample(index // info.fingerprint.shard_size, index)
        if index in wrong or not path.exists():
            continue
        stored = load_file(path)
        with torch.inference_mode():
            out = network(stored[INPUT_IDS].unsqueeze(0), output_hidden_states=True, use_cache=False)
        states = out.hidden_states
        # The last of transformers' states is behind the final norm; the last layer's own output is before it.
        expected = torch.cat([(states[k] if k < len(states) - 1 else before[0])[0] for k in target.layers], dim=-1)
        there = [_largest(stored[LAST], states[-1][0])] if LAST in stored else []
        there += [_largest(stored[LAST_PRENORM], before[0][0])] if LAST_PRENORM in stored else []
        each.append((index, _largest(stored[AUX], expected), max(there)))
    if not each:
        raise NothingToDo("no published file to recompute", do="Run hsqueue status to see how far the run is.")
    return Difference(tuple(each))


def _largest(stored: Any, expected: Any) -> float:
    difference = float((stored - expected).abs().max())
    return inf if isnan(difference) else difference


def _chosen(total: int, count: int) -> list[int]:
    if count <= 0 or count >= total:
        return list(range(total))
    return sorted({i * total // count for i in range(count)})
