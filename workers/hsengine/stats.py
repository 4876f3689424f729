"""What the engine has done, for tests that must prove what was asked and what was not."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hsqueue.contracts.rid import PREFIX, parse_rid

HEALTH_PREFIX = "HEALTH_CHECK"


@dataclass(slots=True)
class Stats:
    """asked: ``(rid, tokens)`` of every request, in order of arrival. Each field has one writing thread."""

    asked: list[tuple[str, int]] = field(default_factory=list)
    refused: int = 0
    prefill_passes: int = 0
    decode_passes: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    finished: int = 0
    aborted: int = 0

    def counters(self) -> dict[str, object]:
        prefixes = Counter(prefix_of(rid) for rid, _ in self.asked)
        return {
            "requests": dict(prefixes),
            "refused": self.refused,
            "finished": self.finished,
            "aborted": self.aborted,
            "forward_passes": self.prefill_passes + self.decode_passes,
            "prefill_passes": self.prefill_passes,
            "decode_passes": self.decode_passes,
            "prefill_tokens": self.prefill_tokens,
            "decode_tokens": self.decode_tokens,
        }

    def requests(self) -> dict[str, object]:
        """Every rid seen, and per run how often each sample's index was asked for."""
        runs: dict[str, Counter[int]] = {}
        for rid, _ in self.asked:
            if (parsed := parse_rid(rid)) is not None:
                runs.setdefault(parsed.run, Counter())[parsed.index] += 1
        return {
            "requests": [{"rid": rid, "tokens": tokens} for rid, tokens in self.asked],
            "indices": {run: {str(index): n for index, n in counts.items()} for run, counts in runs.items()},
        }


def prefix_of(rid: str) -> str:
    """``hsq.``, ``HEALTH_CHECK`` or ``other``."""
    return next((prefix for prefix in (PREFIX, HEALTH_PREFIX) if rid.startswith(prefix)), "other")
