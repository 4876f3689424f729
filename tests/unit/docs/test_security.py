"""docs/security.md names a test for every threat, and each of them exists."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.unit.docs.markdown import ROOT, codes, read, rows, section

PAGE = read("docs/security.md")
TABLES = ("Messages and Redis", "Files", "The engine and Flower")


def threats() -> list[list[str]]:
    return [row for title in TABLES for row in rows(section(PAGE, title))]


def exists(name: str) -> bool:
    """``path/to/test.py::function``, or a whole file."""
    path, _, function = name.partition("::")
    if not (ROOT / path).is_file() or not Path(path).name.startswith("test_"):
        return False
    tree = ast.parse((ROOT / path).read_text())
    found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return function in found if function else any(name.startswith("test_") for name in found)


def test_every_threat_has_a_defence_and_a_test_that_exists() -> None:
    assert len(threats()) > 25
    for row in threats():
        assert len(row) == 3, row
        assert all(row), row
        (name,) = codes(row[2])
        assert exists(name), name


def test_notices_a_test_that_does_not_exist() -> None:
    assert exists("tests/unit/docs/test_security.py::test_notices_a_test_that_does_not_exist")
    assert not exists("tests/unit/docs/test_security.py::test_of_nothing")
    assert not exists("tests/unit/docs/test_nothing.py")


def test_every_security_test_is_named() -> None:
    """A file of tests that the page passes over would be found by nobody who reads it."""
    named = {code.partition("::")[0] for row in threats() for code in codes(row[2])}
    files = {str(path.relative_to(ROOT)) for path in ROOT.glob("tests/integration/test_security_*.py")}
    assert files <= named


def test_says_how_many_commands_the_user_may_call() -> None:
    count = read("ops/redis-users.acl").count(" +")
    assert f"a user](#the-user-in-redis) with {count} commands" in PAGE
