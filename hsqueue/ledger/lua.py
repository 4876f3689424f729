"""The Lua scripts beside this file: each is one change of the ledger that happens wholly or not at all."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import redis
from redis.commands.core import Script

SCRIPTS = (
    "acquire",
    "renew",
    "release",
    "commit",
    "finish",
    "claim",
    "forget",
    "reclaim",
    "standing",
    "meter",
)
PACE, PACED = "pace", ("acquire", "commit")
"""A part of a script, and the scripts that it stands before."""


@cache
def script_text(name: str) -> str:
    folder = files("hsqueue.ledger") / "scripts"
    text = (folder / f"{name}.lua").read_text()
    return (folder / f"{PACE}.lua").read_text() + text if name in PACED else text


def register(client: redis.Redis) -> dict[str, Script]:
    """Every script, ready to be called by `client`; nothing is sent yet."""
    return {name: client.register_script(script_text(name)) for name in SCRIPTS}
