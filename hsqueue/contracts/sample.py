"""A sample's plan and its ending."""

from __future__ import annotations

import array
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Sample:
    """One row of the plan. index: dense, from 0. id: the user's. input_ids: token ids [S].
    loss_mask: bytes of 0 and 1 [S], 1 where the drafter is trained.
    """

    index: int
    id: str
    input_ids: array.array[int]
    loss_mask: bytes

    @property
    def tokens(self) -> int:
        return len(self.input_ids)


class Ending(StrEnum):
    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Published:
    """A sample whose file stands under its final name. tokens: rows. bytes: length of the file.
    digest: of the whole file, see ``hsqueue.store.samplefile``.
    """

    index: int
    tokens: int
    bytes: int
    digest: str


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A sample that ended without a file. ending: SKIPPED or FAILED. attempts: requests made for it.
    error: the class of the last error. detail: its text.
    """

    index: int
    ending: Ending
    attempts: int
    error: str
    detail: str
