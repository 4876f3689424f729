"""docs/decisions.md gives every dependency its line; the changelog knows the version."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

from hsqueue import __version__
from tests.unit.docs.markdown import codes, read, rows, section


def dependencies() -> Iterator[tuple[str, str, str]]:
    """``(package, range, where)`` of pyproject.toml."""
    project = tomllib.loads(read("pyproject.toml"))["project"]
    yield from (_split(one, "base") for one in project["dependencies"])
    for extra, listed in project["optional-dependencies"].items():
        where = "dev" if extra == "dev" else f"extra `{extra}`"
        yield from (_split(one, where) for one in listed if not one.startswith("hsqueue["))


def _split(requirement: str, where: str) -> tuple[str, str, str]:
    found = re.fullmatch(r"([\w.-]+)(.*)", requirement)
    assert found
    return found[1], found[2].strip(), where


def test_every_dependency_and_its_range() -> None:
    table = rows(section(read("docs/decisions.md"), "Dependencies"))
    written = [(row[0], "".join(codes(row[1])), row[2]) for row in table]
    assert written == list(dependencies())
    assert all(row[3] for row in table)


def test_changelog_begins_with_this_version() -> None:
    assert re.search(r"^## (\S+?)(?:,| )", read("CHANGELOG.md"), re.MULTILINE)[1] == __version__  # type: ignore[index]
