"""Calls of the system that go wrong in processes started with ``shimmed``: slow fsync, lying link, a set clock."""

from __future__ import annotations

import errno
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SHIMS = Path(__file__).with_name("shims")


def shimmed(environment: Mapping[str, str], control: Path, links: Path = Path(os.devnull)) -> dict[str, str]:
    """`environment` for processes that look at `control` from then on; nothing goes wrong while it does not exist.

    links: file that receives every name that such a process has linked, a line each.
    """
    paths = os.pathsep.join(filter(None, (str(SHIMS), environment.get("PYTHONPATH", ""))))
    return {**environment, "PYTHONPATH": paths, "CHAOS_CONTROL": str(control), "CHAOS_LINKS": str(links)}


@dataclass(frozen=True, slots=True)
class _Shim(ABC):
    control: Path

    @abstractmethod
    def setting(self) -> dict[str, float]:
        """What the control file says while the fault is in force."""

    def apply(self) -> str:
        setting = self.setting()
        temporary = self.control.with_suffix(".new")
        temporary.write_text(json.dumps(setting))
        temporary.rename(self.control)
        return ", ".join(f"{name} {value}" for name, value in setting.items())

    def undo(self) -> None:
        self.control.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class SlowFsync(_Shim):
    """Every fsync takes `seconds`."""

    seconds: float

    def setting(self) -> dict[str, float]:
        return {"fsync_seconds": self.seconds}


@dataclass(frozen=True, slots=True)
class LinkLies(_Shim):
    """``link`` reports an error after it has worked, as over NFS when the answer is lost."""

    error: int = errno.EIO

    def setting(self) -> dict[str, float]:
        return {"link_error": self.error}


@dataclass(frozen=True, slots=True)
class ClockSet(_Shim):
    """The wall clock jumps by `seconds`, forward or back, and jumps back when undone."""

    seconds: float

    def setting(self) -> dict[str, float]:
        return {"clock_seconds": self.seconds}
