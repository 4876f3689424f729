"""Reads published samples of a run: python examples/read_samples.py RUN [HOW MANY]."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from safetensors import safe_open


def main(root: Path, count: int) -> None:
    fingerprint = json.loads((root / "run.json").read_text())["fingerprint"]
    print(f"layers {fingerprint['layers']} (inputs of layers), norm {fingerprint['norm']}, {fingerprint['dtype']}")
    for path in sorted((root / "samples").rglob("*.safetensors"))[:count]:
        with safe_open(path, framework="pt") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            print(file.metadata()["id"], shapes)


if __name__ == "__main__":
    if len(sys.argv) < 2 or not (Path(sys.argv[1]) / "run.json").exists():
        sys.exit("usage: read_samples.py RUN [HOW MANY], where RUN is a directory with run.json")
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 3)
