"""``python -m tests.chaos.cluster.contest RUN ORDER``: one who publishes samples as fast as it can.

ORDER: their indices, as JSON. Says ``ready`` once it knows that no sample is there, begins at a line on its standard
input, and ends with a line of JSON: the digests that it was told.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from hsqueue.store.layout import RunLayout
from hsqueue.store.publish import publish
from tests.support.volume import Volume, make_info, make_sample

TOKENS = 12


def volume_in(root: Path, count: int) -> Volume:
    """One shard of `count` samples, of which nothing is written yet."""
    samples = tuple(make_sample(index, TOKENS) for index in range(count))
    return Volume(RunLayout(root), make_info([TOKENS] * count, count), samples)


def main(root: Path, order: list[int]) -> None:
    volume = volume_in(root, len(order))
    jobs = [volume.publication(index) for index in order]
    assert not any(job.final.exists() for job in jobs)
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps([publish(job, lambda: None).digest for job in jobs]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
