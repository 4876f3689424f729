"""Links resolve, named files and make targets exist, and no page knows the machine that it was written on."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.calls import misunderstood
from tests.unit.docs.markdown import ROOT, anchors, links, pages, read, shell_blocks

NAMES = [str(path.relative_to(ROOT)) for path in pages()]
FORBIDDEN = re.compile(r"\.\./\.\./|(?<![\w.~])/(?:work|root|home|tmp|Users)/|\bissues? #?\d|file://")
CALL = re.compile(r"(?:^|[ /])hsqueue ((?:ledger )?[a-z]+(?: [^\n;|&>]*)?)(?=[\n;|&>])", re.MULTILINE)
TESTED_WITH_OPS = {"docs/howto-cluster.md", "ops/README.md"}
"""Their calls are tested beside the files of ops/, which make the same ones."""


def test_finds_the_pages() -> None:
    assert {"README.md", "docs/README.md", "docs/architecture.md", "CONTRIBUTING.md", "ops/README.md"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_relative_links_resolve(name: str) -> None:
    for link in links(read(name)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / name).parent / path if path else ROOT / name
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), link


@pytest.mark.parametrize("name", NAMES)
def test_stands_alone(name: str) -> None:
    assert [line for line in read(name).splitlines() if FORBIDDEN.search(line)] == []


@pytest.mark.parametrize("text", ["see ../../x.md", "in /home/me", "`/root/x`", "as issue 2 says", "/tmp/run"])
def test_notices_what_does_not_stand_alone(text: str) -> None:
    assert FORBIDDEN.search(text)


@pytest.mark.parametrize("name", NAMES)
def test_named_files_exist(name: str) -> None:
    named = re.findall(r"`((?:hsqueue|workers|tests|ops|docs|examples|benchmarks|\.ci)/[\w./@-]*)`", read(name))
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", NAMES)
def test_make_targets_exist(name: str) -> None:
    text = read(name)
    words = [*re.findall(r"`make ([a-z-]+)`", text), *re.findall(r"^make ([a-z-]+)", "".join(shell_blocks(text)), re.M)]
    targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))
    assert set(words) <= targets


def calls(text: str) -> list[str]:
    """The words behind ``hsqueue`` of every call in the shell blocks of a page, comments left out."""
    blocks = "\n".join(shell_blocks(text)).replace("\\\n", "") + "\n"
    return CALL.findall(re.sub(r"(^| )#.*$", "", blocks, flags=re.MULTILINE))


@pytest.mark.parametrize("name", sorted(set(NAMES) - TESTED_WITH_OPS))
def test_command_line_understands_the_blocks(name: str) -> None:
    assert [(words, fault) for words in calls(read(name)) if (fault := misunderstood(words))] == []


def test_finds_the_calls() -> None:
    found = calls(read("docs/howto-operate.md"))
    for expected in ("status", "enqueue", "run", "retry", "verify", "worker", "clean", "ledger rebuild", "ledger show"):
        assert any(words.startswith(expected) for words in found), expected


@pytest.mark.parametrize("words", ["plans x", "status RUN --jsonn", "ledger rebuilt RUN", "worker --enginge http://x"])
def test_notices_a_call_that_does_not_exist(words: str) -> None:
    assert misunderstood(words)


@pytest.mark.parametrize("name", NAMES)
def test_shell_understands_the_blocks(name: str) -> None:
    for block in shell_blocks(read(name)):
        done = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), block


def test_index_names_every_page() -> None:
    listed = {Path(link).name for link in links(read("docs/README.md"))}
    assert {path.name for path in (ROOT / "docs").glob("*.md")} <= listed
