"""``hsqueue run`` from prompts to verified files, again, and with something changed."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest

from hsqueue.cli.access import open_run
from hsqueue.contracts.errors import HsqueueError
from hsqueue.ledger.connect import connect
from hsqueue.ledger.ledger import Ledger
from hsqueue.local.redis import running_url
from hsqueue.monitoring.snapshot import Snapshot, from_ledger
from tests.support.cli import hsqueue, start
from tests.support.prompts import Reference, conversations, published, wrong_samples

COUNT = 96


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return conversations(tmp_path_factory.mktemp("prompts") / "prompts.jsonl", COUNT)


@pytest.fixture(scope="module")
def run(prompts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete run, made while its status was read as fast as it could be."""
    root = tmp_path_factory.mktemp("main") / "run"
    process = start(*arguments(prompts, root), log=root.with_suffix(".log"))
    seen = watch(process, root)
    assert process.returncode == 0, root.with_suffix(".log").read_text()
    assert len(seen) > 3, "the run ended before its status could be read"
    for snapshot in seen:
        assert snapshot.total == COUNT
        assert snapshot.total == snapshot.done + snapshot.skipped + snapshot.failed + snapshot.pending
        assert snapshot.pending >= 0
    assert [s.done for s in seen] == sorted(s.done for s in seen)
    return root


def arguments(prompts: Path, root: Path, *more: str) -> list[str | Path]:
    return ["run", prompts, "--out", root, "--engines", "2", "--shard-size", "8", "--deep", *more]


def watch(process: subprocess.Popen[bytes], root: Path) -> list[Snapshot]:
    seen: list[Snapshot] = []
    while process.poll() is None:
        with contextlib.suppress(HsqueueError):
            opened = open_run(root)
            url = running_url(opened.layout.redis)
            if url is not None:
                seen.append(from_ledger(Ledger(connect(url), url, opened.info.run), opened.info))
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.01)
    return seen


def test_every_sample_is_published_with_its_own_states(run: Path) -> None:
    assert published(run) == set(range(COUNT))
    assert wrong_samples(run, Reference()) == []


def test_verify_is_clean_and_recomputes_the_states(run: Path) -> None:
    from hsqueue.cli.options import default_model

    result = hsqueue("verify", run, "--deep", "--against", default_model())
    assert result.status == 0, result.text
    assert f"{COUNT} files right" in result.out


def test_the_same_command_again_says_complete_and_starts_nothing(run: Path, prompts: Path) -> None:
    logs = {path: path.stat().st_size for path in (run / "logs").iterdir()}
    result = hsqueue(*arguments(prompts, run))
    assert result.status == 0, result.text
    assert "nothing left to do" in result.out
    assert "complete" in result.out
    assert {path: path.stat().st_size for path in (run / "logs").iterdir()} == logs


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (("--layers", "1,4,5"), "layers"),
        (("--norm", "pre"), "norm"),
        (("--max-length", "512"), "max_length"),
        (("--shard-size", "16"), "shard_size"),
        (("--dtype", "bfloat16"), "dtype"),
    ],
)
def test_a_changed_option_is_refused_by_name(run: Path, prompts: Path, change: tuple[str, str], field: str) -> None:
    result = hsqueue(*arguments(prompts, run, *change))
    assert result.status == 1
    assert f"({field}: the run has" in result.err
    assert "Traceback" not in result.text


def test_a_changed_data_set_is_refused(run: Path, prompts: Path) -> None:
    text = prompts.read_text()
    prompts.write_text(text.replace("Natalia", "Natasha", 1))
    try:
        result = hsqueue(*arguments(prompts, run))
    finally:
        prompts.write_text(text)
    assert result.status == 1
    assert "(dataset: the run has" in result.err


def test_a_changed_tokenizer_and_template_are_refused(run: Path, prompts: Path, tmp_path: Path) -> None:
    from hsqueue.cli.options import default_model

    for path in default_model().glob("tokenizer*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    config = tmp_path / "tokenizer_config.json"
    config.write_text(config.read_text().replace("{", '{"model_max_length": 4095,', 1))
    template = tmp_path / "template.jinja"
    template.write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
    result = hsqueue(*arguments(prompts, run, "--tokenizer", str(tmp_path), "--chat-template", str(template)))
    assert result.status == 1
    assert "tokenizer: the run has" in result.err
    assert "chat_template: the run has" in result.err


def test_status_without_a_running_redis_reads_the_volume(run: Path) -> None:
    result = hsqueue("status", run, "--json")
    assert result.status == 0, result.text
    found = result.json()
    assert found["source"] == "volume"
    assert (found["total"], found["done"], found["pending"]) == (COUNT, COUNT, 0)


def test_one_sample_can_be_looked_up_by_id(run: Path) -> None:
    result = hsqueue("ledger", "get", run, "gsm8k-train-00005")
    assert result.status == 0, result.text
    assert result.out.startswith("sample 5 (id gsm8k-train-00005): shard 0")
    assert "000000000005.safetensors" in result.out


def test_the_message_to_clean_leaves_every_result(run: Path) -> None:
    before = published(run)
    result = hsqueue("clean", run)
    assert result.status == 0, result.text
    assert published(run) == before
    assert hsqueue("verify", run).status == 0
