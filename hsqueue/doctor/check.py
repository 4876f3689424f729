"""What a check found. Each looks, and says what it found; none raises for what it finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hsqueue.contracts.errors import HsqueueError

Verdict = Literal["ok", "warn", "bad"]


@dataclass(frozen=True, slots=True)
class Check:
    """subject: what was looked at. text: what was found. do: what to change, where anything has to be."""

    subject: str
    verdict: Verdict
    text: str
    do: str = ""

    @classmethod
    def of(cls, subject: str, error: HsqueueError) -> Check:
        return cls(subject, "bad", str(error))

    @classmethod
    def judge(cls, subject: str, text: str, wrong: Verdict | None, do: str) -> Check:
        """wrong: how bad it is; None where it is well, and then there is nothing to do."""
        return cls(subject, wrong or "ok", text, do if wrong else "")
