"""From when on something counts as wrong. Everything is to be seen within 15 s of its beginning."""

from __future__ import annotations

HEARTBEAT = 2.0
"""Seconds between two signs of life of a worker."""
SILENCE = 8.0
"""Seconds without one after which a worker counts as gone."""
QUIET = 7.0
"""Seconds without an answer of an engine with requests, or without a publication while some are under way."""
FIRST_ANSWER = 30.0
"""The same before an engine's first answer in a shard, which may have to wait for one long prompt."""
SLOW_VOLUME = 1.0
"""Seconds to publish a sample from which a volume may be called slow; a shared one takes a tenth of it."""
DUMPS_FREE = 0.05
"""Part of the dump directory's file system that has to be free."""
RECENT_FAILURES = 300.0
"""Seconds for which a failed sample is news."""
STALLED = 90.0
"""Seconds without an ending, though workers are at it."""


def volume_is_slow(publish: float, answer: float) -> bool:
    """publish, answer: seconds for a sample. A volume that keeps up with its engine is fast enough."""
    return publish >= SLOW_VOLUME and publish >= answer


def engine_is_stalled(quiet: float, answer: float) -> bool:
    """quiet: seconds since the last answer, with requests in flight. answer: seconds that one takes of late, 0 before
    the first. Requests wait for each other, so answers come far more often than one takes.
    """
    return quiet >= (max(QUIET, 2 * answer) if answer else FIRST_ANSWER)
