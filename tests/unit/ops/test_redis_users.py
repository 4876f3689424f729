"""The user of redis-users.acl may call what the scripts and the ledger call, and names no more than that."""

from __future__ import annotations

import re
from pathlib import Path

LIBRARIES = (
    # redis-py and kombu: connections, messages, acknowledgements, remote control, events.
    "auth hello ping select client|setname client|setinfo multi exec discard watch unwatch eval evalsha script|load "
    "script|exists llen lpush rpush rpop brpop sadd srem smembers zrange zrevrangebyscore zadd zrem hget hset hdel set "
    "del exists pexpire publish subscribe unsubscribe psubscribe punsubscribe"
)
METHOD = re.compile(r"\b(?:client|pipe)\.([a-z]+)\(|self\.client\.([a-z]+)\(|execute\(\"([A-Z]+)\"")
OURS_BUT_NO_COMMANDS = {"pipeline", "execute", "delete", "close"}


def allowed(root: Path) -> set[str]:
    rules = root.joinpath("ops/redis-users.acl").read_text().split("user hsqueue ")[1].split()
    assert "-@all" in rules
    assert not [rule for rule in rules if rule.startswith("+@")]
    return {rule[1:] for rule in rules if rule.startswith("+")}


def called(root: Path) -> set[str]:
    found: set[str] = set()
    for script in root.glob("hsqueue/ledger/scripts/*.lua"):
        found |= {name.lower() for name in re.findall(r"redis\.p?call\(\s*['\"](\w+)", script.read_text())}
    for module in (*root.glob("hsqueue/**/*.py"), *root.glob("workers/hsworker/*.py")):
        text = module.read_text()
        if "redis" in text:
            found |= {name.lower() for match in METHOD.findall(text) for name in match if name}
    return found - OURS_BUT_NO_COMMANDS


def test_what_the_ledger_calls_is_allowed(root: Path) -> None:
    names = called(root)
    assert {"bitcount", "zscore", "hgetall", "getrange"} <= names
    assert names - NOT_REDIS <= allowed(root)


def test_nothing_is_allowed_that_nobody_calls(root: Path) -> None:
    assert allowed(root) <= called(root) | set(LIBRARIES.split())


NOT_REDIS = {"alive", "prefill", "abort", "lock"}
"""Methods of the engine's client, and redis-py's lock, which is made of set and scripts."""
