"""Request ids: ``hsq.<run>.<index>.<fence>.<attempt>``, unique for ever and safe as a file name."""

from __future__ import annotations

import re
from dataclasses import dataclass

PREFIX = "hsq."
RUN_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_RID = re.compile(r"hsq\.([a-z0-9][a-z0-9-]{0,31})\.(\d{1,15})\.(\d{1,20})\.(\d{1,6})", re.ASCII)


@dataclass(frozen=True, slots=True)
class RequestId:
    """One attempt at one sample under one lease.

    run: the run's id, at most 32 of ``[a-z0-9-]``. index: the sample's dense index in the plan.
    fence: the fencing token of the shard's lease. attempt: counts from 0 within that lease.
    """

    run: str
    index: int
    fence: int
    attempt: int

    def __str__(self) -> str:
        return f"{PREFIX}{self.run}.{self.index}.{self.fence}.{self.attempt}"

    @property
    def directory(self) -> str:
        """Name of the dump's directory under the engine's dump directory."""
        return dump_directory_name(str(self))


def parse_rid(text: str) -> RequestId | None:
    """The request id in `text`, or None where it is not one of hsqueue's; rids are foreign input."""
    match = _RID.fullmatch(text)
    if match is None:
        return None
    run, index, fence, attempt = match.groups()
    return RequestId(run, int(index), int(fence), int(attempt))


def dump_directory_name(rid: str) -> str:
    """``req_<rid>`` for a rid that is one of hsqueue's or otherwise safe as a file name.

    Raises ValueError for anything that could leave the dump directory or exceed a file name's length.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", rid) or ".." in rid:
        raise ValueError(f"request id {rid[:80]!r} is not safe as a directory name")
    return f"req_{rid}"
