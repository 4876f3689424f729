"""Counters that workers add up in Redis, by name: where time goes, and what came of it.

========================  ==================================================================================
``<stage>.us``            microseconds spent, summed over samples; for ``ledger`` over commits
``<stage>.le.<bound>``    how many took at most `bound` seconds, and more than the bound before: not cumulative
``samples``               published
``tokens`` ``bytes``      of those; bytes of their files
``skipped`` ``failed``    given up
``errors.<name>``         requests that came to nothing, by the name of their error
========================  ==================================================================================
"""

from __future__ import annotations

from bisect import bisect_left

ENGINE, DUMP, VOLUME, LEDGER = "engine", "dump", "volume", "ledger"
STAGES = (ENGINE, DUMP, VOLUME, LEDGER)
"""Waiting for the engine's answer, for its dump, publishing on the volume, committing to the ledger."""

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, float("inf"))
"""Upper bounds of the buckets, seconds."""


BUCKETS = {stage: tuple(f"{stage}.le.{bound:g}" for bound in BOUNDS) for stage in STAGES}
"""Names of a stage's buckets, one for each bound."""


def spent_name(stage: str) -> str:
    return f"{stage}.us"


def bucket_name(stage: str, seconds: float) -> str:
    """Of the bucket that `seconds` falls into."""
    return BUCKETS[stage][bisect_left(BOUNDS, seconds)]


def error_name(error: str) -> str:
    return f"errors.{error}"
