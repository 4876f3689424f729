"""docs/troubleshooting.md has every named error with its kind, and howto-prompts.md every reason to reject a line."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

from hsqueue.contracts import errors
from hsqueue.contracts.errors import HsqueueError
from hsqueue.planning.rejects import Reason
from tests.unit.docs.markdown import ROOT, first_codes, headings, own, read, section

PAGE = read("docs/troubleshooting.md")
BASES = {"HsqueueError", "RetryError", "SkipError", "StopError"}
NAMES_WITHOUT_A_CLASS = {"EngineKilled", "LeasesExhausted"}
"""Errors of samples that stand in the ledger and that nothing raises."""


def error_classes() -> dict[str, type[HsqueueError]]:
    """Every error that the code defines, wherever it does."""
    found = {}
    for folder, source in (("hsqueue", ROOT), ("workers", ROOT / "workers")):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for name in _defined_in(path):
                module = importlib.import_module(".".join(path.relative_to(source).with_suffix("").parts))
                found[name] = getattr(module, name)
    return {name: error for name, error in found.items() if name not in BASES}


def _defined_in(path: Path) -> list[str]:
    classes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)]
    return [c.name for c in classes if any(isinstance(base, ast.Name) and base.id in BASES for base in c.bases)]


def test_finds_the_errors() -> None:
    declared = {name for name, value in vars(errors).items() if isinstance(value, type) and name[0].isupper()}
    assert declared - BASES - {"Kind", "StrEnum"} <= error_classes().keys()


def test_every_error_has_its_section_and_no_other_has() -> None:
    titles = {title for level, title in headings(PAGE) if level == 3}
    assert titles == error_classes().keys() | NAMES_WITHOUT_A_CLASS


def test_names_without_a_class_are_in_the_code() -> None:
    code = read("workers/hsworker/progress.py") + read("workers/hsworker/shard.py")
    assert all(f'"{name}"' in code for name in NAMES_WITHOUT_A_CLASS)


def test_says_the_kind() -> None:
    for name, error in error_classes().items():
        found = re.match(r"\s*\*([a-z-]+)\* · ", own(PAGE, name))
        assert found, name
        assert found[1] == error.kind.value, name


def test_every_reason_to_reject_a_line() -> None:
    table = first_codes(section(read("docs/howto-prompts.md"), "Why a line is rejected"))
    assert table == [reason.value for reason in Reason]
