"""The plugin's settings: ``HSQ_*`` variables of the server's environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hscapture.janitor import TTL_SECONDS
from hscapture.room import WAIT_SECONDS
from hscapture.writer import PENDING_BYTES
from hsqueue.contracts.errors import UsageError
from hsqueue.contracts.rid import PREFIX
from hsqueue.contracts.target import NORMS

DUMP_DIR = Path("/dev/shm/sglang_hs")  # noqa: S108 - the contract's default, made private by whoever makes it
CAPTURES = ("hsq", "all")
WRITERS = 2
"""Threads; one writes 2.7 GB/s to /dev/shm, twice what an H200 makes of an 8B model's states."""


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """dump_dir: HSQ_DUMP_DIR. layers: HSQ_LAYERS as written, ``eagle3``, ``all`` or ids. norm: HSQ_NORM.
    capture: HSQ_CAPTURE, ``hsq`` for hsqueue's own requests only, or ``all``. writers: HSQ_WRITERS, threads.
    pending_bytes: HSQ_DUMP_PENDING_BYTES, states that may wait to be written.
    limit: HSQ_DUMP_LIMIT, bytes of unread dumps, or None for half of the file system. wait: HSQ_DUMP_WAIT, seconds
    that a dump may wait for room. ttl: HSQ_DUMP_TTL, seconds after which an unread dump is removed.
    """

    dump_dir: Path = DUMP_DIR
    layers: str = "eagle3"
    norm: str = "post"
    capture: str = "hsq"
    writers: int = WRITERS
    pending_bytes: int = PENDING_BYTES
    limit: int | None = None
    wait: int = WAIT_SECONDS
    ttl: int = TTL_SECONDS

    def wants(self, rid: str) -> bool:
        """Whether a request with this rid is dumped."""
        return self.capture == "all" or rid.startswith(PREFIX)


def from_environment(environment: Mapping[str, str]) -> CaptureSettings:
    """Settings from variables; empty ones count as unset. Raises UsageError, naming the variable."""

    def text(name: str, default: str) -> str:
        return environment.get(name) or default

    limit = environment.get("HSQ_DUMP_LIMIT")
    return CaptureSettings(
        dump_dir=Path(text("HSQ_DUMP_DIR", str(DUMP_DIR))),
        layers=text("HSQ_LAYERS", "eagle3"),
        norm=_choice("HSQ_NORM", text("HSQ_NORM", "post"), NORMS),
        capture=_choice("HSQ_CAPTURE", text("HSQ_CAPTURE", "hsq"), CAPTURES),
        writers=_whole("HSQ_WRITERS", text("HSQ_WRITERS", str(WRITERS))),
        pending_bytes=_whole("HSQ_DUMP_PENDING_BYTES", text("HSQ_DUMP_PENDING_BYTES", str(PENDING_BYTES))),
        limit=_whole("HSQ_DUMP_LIMIT", limit) if limit else None,
        wait=_whole("HSQ_DUMP_WAIT", text("HSQ_DUMP_WAIT", str(WAIT_SECONDS)), least=0),
        ttl=_whole("HSQ_DUMP_TTL", text("HSQ_DUMP_TTL", str(TTL_SECONDS))),
    )


def _choice(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise UsageError(f"{name} is not understood", expected=" or ".join(allowed), found=repr(value)[:60])
    return value


def _whole(name: str, value: str, least: int = 1) -> int:
    if not value.isascii() or not value.isdecimal() or int(value) < least:
        raise UsageError(f"{name} must be a whole number of at least {least}", found=repr(value)[:60])
    return int(value)
