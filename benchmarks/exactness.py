"""Published states against transformers: how far they are off, beside how far the dtype itself puts them off.

    python benchmarks/exactness.py RUN MODEL [--device cuda] [--count 2000]

Three forward passes of the same weights are compared: the server's, in the run's dtype (read from RUN);
transformers' in the same dtype; and transformers' in float32, which counts as the truth. Where the server's rows are
as near to the truth as transformers' own, the difference is the dtype's. Token ids must be equal.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from hsqueue.contracts.dump import AUX, INPUT_IDS, LAST
from hsqueue.planning.plan import load_run
from hsqueue.planning.shards import read_shard
from hsqueue.store.layout import RunLayout


def load(model: Path, dtype: torch.dtype, device: str) -> Any:
    network = AutoModelForCausalLM.from_pretrained(
        model, dtype=dtype, attn_implementation="sdpa", local_files_only=True
    )
    return network.to(device).eval()


def states(network: Any, ids: torch.Tensor, layers: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """(aux [S, A*H], last [S, H]) in float32."""
    out = network.model(ids.unsqueeze(0), output_hidden_states=True, use_cache=False)
    aux = torch.cat([out.hidden_states[k][0] for k in layers], dim=-1)
    return aux.float(), out.last_hidden_state[0].float()


def distance(found: torch.Tensor, truth: torch.Tensor) -> float:
    """Relative: the norm of the difference over the norm of the truth."""
    return float((found - truth).norm() / truth.norm())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--count", type=int, default=0, help="Samples, spread evenly; 0: all.")
    arguments = parser.parse_args()
    info, layout = load_run(arguments.run), RunLayout(arguments.run)
    target = info.fingerprint.target
    same = load(arguments.model, getattr(torch, target.dtype), arguments.device)
    exact = load(arguments.model, torch.float32, arguments.device)
    step = max(1, info.samples // arguments.count) if arguments.count else 1
    rows: list[tuple[int, float, float, float, float]] = []
    ids_equal = 0
    for shard in range(info.shards):
        for sample in read_shard(layout.plan_shard(shard), info.shard_range(shard)):
            stored = load_file(layout.sample(shard, sample.index))
            ids_equal += stored[INPUT_IDS].tolist() == sample.input_ids.tolist()
            if sample.index % step:
                continue
            ids = stored[INPUT_IDS].to(arguments.device)
            with torch.inference_mode():
                truth_aux, truth_last = states(exact, ids, target.layers)
                own_aux, own_last = states(same, ids, target.layers)
            aux, last = stored[AUX].to(arguments.device).float(), stored[LAST].to(arguments.device).float()
            rows.append((
                sample.tokens, distance(aux, truth_aux), distance(own_aux, truth_aux),
                distance(last, truth_last), distance(own_last, truth_last),
            ))  # fmt: skip
    table = torch.tensor(rows)
    mean, worst = table.mean(0), table.max(0).values
    print(json.dumps({
        "samples": info.samples, "token_ids_equal": ids_equal, "compared": len(rows),
        "shortest": int(table[:, 0].min()), "longest": int(table[:, 0].max()), "dtype": target.dtype,
        "aux_server_mean": float(mean[1]), "aux_transformers_mean": float(mean[2]),
        "aux_server_worst": float(worst[1]), "aux_transformers_worst": float(worst[2]),
        "last_server_mean": float(mean[3]), "last_transformers_mean": float(mean[4]),
        "last_server_worst": float(worst[3]), "last_transformers_worst": float(worst[4]),
        "aux_ratio": float(mean[1] / mean[2]), "last_ratio": float(mean[3] / mean[4]),
    }, indent=1))  # fmt: skip


if __name__ == "__main__":
    main()
