"""What the guide and the files of ops/ tell people to type exists: commands, options, files, variables, headings."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
import yaml

from hsqueue.cli.main import app
from tests.support.calls import misunderstood

GUIDES = ["docs/howto-cluster.md", "ops/README.md"]
COMMANDS = typer.main.get_command(app)


def code(text: str) -> list[str]:
    """The shell blocks of a page."""
    return re.findall(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def calls(root: Path) -> Iterator[tuple[str, str]]:
    """``(where, words after hsqueue)`` of every call of the command line in guides, units, scripts and manifests."""
    for name in GUIDES:
        for block in code((root / name).read_text()):
            for words in re.findall(
                r"(?:^|(?<!-n)(?<!-u)[ /])hsqueue ((?:ledger )?[a-z]+ [^\n#;|]*)",
                block.replace("\\\n", ""),
                re.MULTILINE,
            ):
                yield name, words
    for path in [*root.glob("ops/systemd/*.service"), *root.glob("ops/slurm/*")]:
        for words in re.findall(r"(?:^|/)hsqueue ([a-z].*)$", path.read_text().replace("\\\n", ""), re.MULTILINE):
            yield str(path.relative_to(root)), words
    for name, service in yaml.safe_load((root / "compose.yaml").read_text())["services"].items():
        if name.startswith(("worker", "flower", "exporter")):
            yield f"compose.yaml: {name}", " ".join(service["command"])
    for name in ("head.yaml", "gpu.yaml"):
        for manifest in yaml.safe_load_all((root / "ops/kubernetes" / name).read_text()):
            for container in manifest["spec"].get("template", {}).get("spec", {}).get("containers", []):
                yield name, " ".join(container["args"])


def test_finds_the_calls(root: Path) -> None:
    found = list(calls(root))
    for expected in ("plan", "enqueue", "status", "verify", "doctor", "worker", "flower", "exporter"):
        assert any(words.startswith(expected) for _, words in found), expected
    for where in ("hsqueue.sbatch", "pair.sh", "worker@", "flower.service", "worker-gpu0", "gpu.yaml", "head.yaml"):
        assert any(where in source for source, _ in found), where


def test_every_call_is_understood(root: Path) -> None:
    assert [(where, fault) for where, words in calls(root) if (fault := misunderstood(words))] == []


@pytest.mark.parametrize("words", ["plans x", "status RUN --jsonn", "ledger rebuilt RUN", "worker --enginge http://x"])
def test_notices_what_does_not_exist(words: str) -> None:
    assert misunderstood(words)


@pytest.mark.parametrize("name", GUIDES)
def test_shell_understands_the_blocks(root: Path, name: str) -> None:
    for block in code((root / name).read_text()):
        done = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), block


@pytest.mark.parametrize("name", GUIDES)
def test_files_and_headings_exist(root: Path, name: str) -> None:
    text = (root / name).read_text()
    anchors = {
        re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-") for h in re.findall(r"^#+ (.*)$", text, re.M)
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= anchors
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert (root / name).parent.joinpath(link).exists(), link
    for path in re.findall(r"\bops/[\w./@-]*\w", text):
        assert (root / path).exists(), path


def test_readme_lists_every_file(root: Path) -> None:
    listed = {entry.rstrip("/") for entry in re.findall(r"`([\w./-]+)`", (root / "ops/README.md").read_text())}
    assert {path.name for path in (root / "ops").iterdir()} - {"README.md"} <= listed


@pytest.mark.parametrize("name", GUIDES)
def test_variables_are_explained(root: Path, name: str, environment_file: dict[str, tuple[str, bool]]) -> None:
    used = set(re.findall(r"\bHSQ_[A-Z_]+\b", (root / name).read_text()))
    assert used - environment_file.keys() - {"HSQ_DUMP_DIR"} == set()
