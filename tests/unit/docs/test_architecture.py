"""docs/architecture.md lists every folder, and what it says about imports holds."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.docs.markdown import ROOT, first_codes, read, rows, section

PAGE = read("docs/architecture.md")
ALL = "hsqueue."
CONTRACTS = "hsqueue.contracts"
STORE = "hsqueue.store"
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "hsqueue/contracts": (CONTRACTS,),
    "hsqueue/settings.py": (CONTRACTS,),
    "hsqueue/logs.py": (CONTRACTS,),
    "hsqueue/wording.py": (CONTRACTS,),
    "hsqueue/store": (CONTRACTS, STORE, "hsqueue.planning.shards", "hsqueue.ledger"),
    "hsqueue/planning": (CONTRACTS, STORE, "hsqueue.planning"),
    "hsqueue/ledger": (CONTRACTS, STORE, "hsqueue.planning.shards", "hsqueue.ledger"),
    "hsqueue/queue": (CONTRACTS, STORE, "hsqueue.planning", "hsqueue.ledger", "hsqueue.logs", "hsqueue.queue"),
    "hsqueue/monitoring": (
        CONTRACTS, STORE, "hsqueue.ledger", "hsqueue.queue", "hsqueue.settings", "hsqueue.monitoring",
    ),
    "hsqueue/report": (
        CONTRACTS, STORE, "hsqueue", "hsqueue.ledger", "hsqueue.monitoring", "hsqueue.planning", "hsqueue.report",
        "hsqueue.wording",
    ),
    "hsqueue/doctor": (ALL,),
    "hsqueue/local": (ALL,),
    "hsqueue/cli": (ALL, "hsqueue"),
    "workers/hsworker": (ALL, "hsworker"),
    "workers/hscapture": (CONTRACTS, "hscapture"),
    "workers/hsengine": (CONTRACTS, "hsqueue", "hscapture", "hsengine"),
}  # fmt: skip
INSIDE_FUNCTIONS = {"hsqueue/doctor": ("hsworker",), "hsqueue/cli": ("hsworker",)}
OURS = ("hsqueue", "hsworker", "hscapture", "hsengine")


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """``(module, at the top)`` of every import of a file."""
    tree = ast.parse(path.read_text())
    top = set(ast.walk(ast.Module([n for n in tree.body if not isinstance(n, ast.FunctionDef | ast.ClassDef)], [])))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node in top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                longer = f"{node.module}.{alias.name}"
                yield (longer if is_module(longer) else str(node.module)), node in top


def is_module(name: str) -> bool:
    """``from package import name`` may name a module of the package, or something in it."""
    places = [base / name.replace(".", "/") for base in (ROOT, ROOT / "workers")]
    return any(place.is_dir() or place.with_suffix(".py").exists() for place in places)


def python_files(folder: str) -> list[Path]:
    path = ROOT / folder
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


def within(module: str, allowed: tuple[str, ...]) -> bool:
    return any(module.startswith(a) if a == ALL else module == a or module.startswith(f"{a}.") for a in allowed)


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_imports(folder: str) -> None:
    wrong = []
    for path in python_files(folder):
        for module, top in imports(path):
            if module.split(".")[0] not in OURS or within(module, MAY_IMPORT[folder]):
                continue
            if top or not within(module, INSIDE_FUNCTIONS.get(folder, ())):
                wrong.append((path.name, module))
    assert wrong == []


def test_the_command_line_alone_goes_to_workers() -> None:
    """Nothing of the queue needs the engine's code: hsqueue runs where torch is not installed."""
    for path in python_files("hsqueue"):
        assert not [m for m, _ in imports(path) if m.split(".")[0] in ("hscapture", "hsengine")], path


def test_contracts_need_the_standard_library_only() -> None:
    for path in python_files("hsqueue/contracts"):
        for module, _ in imports(path):
            first = module.split(".")[0]
            assert first == "hsqueue" or first in sys.stdlib_module_names, (path.name, module)


def test_capture_needs_torch_and_sglang_only() -> None:
    allowed = {"torch", "sglang", "hscapture", "hsqueue", "huggingface_hub"}
    for path in python_files("workers/hscapture"):
        for module, _ in imports(path):
            first = module.split(".")[0]
            assert first in allowed or first in sys.stdlib_module_names, (path.name, module)


def test_every_package_is_in_the_table() -> None:
    listed = {code for row in rows(section(PAGE, "Folders")) for code in first_codes(f"|{row[0]}|")}
    packages = {str(p.parent.relative_to(ROOT)) for p in ROOT.glob("hsqueue/*/__init__.py")}
    packages |= {str(p.parent.relative_to(ROOT)) for p in ROOT.glob("workers/*/__init__.py")}
    modules = {str(p.relative_to(ROOT)) for p in ROOT.glob("hsqueue/*.py") if not p.name.startswith("__")}
    assert packages | modules <= listed
    assert packages | modules == set(MAY_IMPORT)


def test_every_package_is_in_the_table_of_changes() -> None:
    named = "".join(row[1] for row in rows(section(PAGE, "To change …, go to …")))
    for folder in MAY_IMPORT:
        assert folder in named or folder == "hsqueue/logs.py", folder
