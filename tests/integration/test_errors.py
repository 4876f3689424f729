"""What goes wrong first: one clear line that says what to do, the right exit status, no traceback, nothing lost."""

from __future__ import annotations

import gzip
import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import Result, hsqueue
from tests.support.engine import Engine, engine
from tests.support.prompts import conversations, published, token_prompts
from tests.support.redis import redis_server
from tests.support.waiting import await_true, lives

FAULT, USAGE = 1, 2


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def assert_one_line(result: Result, status: int, *words: str) -> None:
    """Exit status, one line on standard error that holds `words`, and no traceback anywhere."""
    assert result.status == status, result.text
    assert "Traceback" not in result.text
    lines = [line for line in result.err.splitlines() if line.strip()]
    assert len(lines) == 1, result.err
    assert lines[0].startswith("hsqueue: ")
    for word in words:
        assert word in lines[0], lines[0]


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return conversations(tmp_path_factory.mktemp("prompts") / "prompts.jsonl", 12)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with engine(tmp_path_factory.mktemp("engine")) as started:
        yield started


BAD_LINES = {
    "bad JSON": '{"id": "a", "text": ',
    "missing id": '{"text": "no id"}',
    "duplicate id": '{"id": "good", "text": "a second one"}',
    "empty": '{"id": "b", "text": ""}',
    "over length": json.dumps({"id": "c", "input_ids": [20] * 5000}),
    "token id outside the vocabulary": '{"id": "d", "input_ids": [20, 4096]}',
    "unknown role": '{"id": "e", "conversations": [{"role": "wizard", "content": "x"}]}',
}


def test_every_kind_of_bad_line_is_counted_shown_and_left_out(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(['{"id": "good", "text": "a good line"}', *BAD_LINES.values()]) + "\n")
    result = hsqueue("plan", path, "--out", tmp_path / "run")
    assert result.status == 0, result.text
    assert "planned: 1 sample" in result.out
    assert f"{len(BAD_LINES)} lines rejected" in result.err
    rejected = [json.loads(line) for line in (tmp_path / "run/plan/rejected.jsonl").read_text().splitlines()]
    assert [row["line"] for row in rejected] == list(range(2, 2 + len(BAD_LINES)))
    for row, reason in zip(rejected, BAD_LINES, strict=True):
        assert row["reason"].lower() == reason.lower(), row
        assert f"prompts.jsonl:{row['line']}" in result.err


def test_nothing_usable_is_no_success(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(BAD_LINES["bad JSON"])
    assert_one_line(
        hsqueue("plan", path, "--out", tmp_path / "run"), FAULT, "no record can be used", "1 bad json", "rejected.jsonl"
    )


@pytest.mark.parametrize("name", ["none.jsonl", "empty.jsonl", "odd.xyz"])
def test_prompts_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    if name != "none.jsonl":
        (tmp_path / name).touch()
    result = hsqueue("plan", tmp_path / name, "--out", tmp_path / "run")
    assert result.status in (FAULT, USAGE)
    assert_one_line(result, result.status)


def test_a_damaged_gzip_is_named(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"id": "a", "text": "x"}\n' * 1000)[:-20])
    result = hsqueue("plan", path, "--out", tmp_path / "run")
    assert_one_line(result, result.status, "prompts.jsonl.gz")
    assert result.status != 0


def test_an_unreachable_engine(tmp_path: Path, prompts: Path) -> None:
    dump_dir = tmp_path / "dumps"
    url = f"http://127.0.0.1:{free_port()}"
    result = hsqueue("run", prompts, "--out", tmp_path / "run", "--engine", url, "--dump-dir", dump_dir)
    assert_one_line(result, FAULT, "engine.json", "HSQ_DUMP_DIR")
    with redis_server(tmp_path / "redis") as redis:
        result = hsqueue(
            "worker", "--engine", url, "--dump-dir", dump_dir, "--wait", "1", env={"HSQ_REDIS_URL": redis.url}
        )
    assert result.status == FAULT
    assert f"no engine answers at {url}" in result.err
    assert "Traceback" not in result.text


def test_an_engine_that_is_gone_before_the_run_starts(tmp_path: Path, prompts: Path) -> None:
    with engine(tmp_path) as gone:
        pass
    result = hsqueue("run", prompts, "--out", tmp_path / "run", "--engine", gone.url, "--dump-dir", gone.dump_dir)
    assert result.status == FAULT
    assert result.err.splitlines()[-1].startswith("hsqueue: no engine answers at")
    assert "Traceback" not in result.text


@pytest.mark.parametrize("command", ["enqueue", "status", "retry"])
def test_an_unreachable_redis(tmp_path: Path, prompts: Path, command: str) -> None:
    root = tmp_path / "run"
    assert hsqueue("plan", prompts, "--out", root).status == 0
    url = f"redis://:secret-word@127.0.0.1:{free_port()}/0"
    result = hsqueue(command, root, env={"HSQ_REDIS_URL": url})
    assert_one_line(result, FAULT, "does not answer", "HSQ_REDIS_URL")
    assert "secret-word" not in result.text


def test_a_worker_without_redis(tmp_path: Path, server: Engine) -> None:
    result = hsqueue("worker", "--engine", server.url, "--dump-dir", server.dump_dir)
    assert_one_line(result, USAGE, "HSQ_REDIS_URL")


def test_a_wrong_password(tmp_path: Path, prompts: Path) -> None:
    root = tmp_path / "run"
    assert hsqueue("plan", prompts, "--out", root).status == 0
    with redis_server(tmp_path / "redis") as redis:
        wrong = redis.url.replace("redis://:", "redis://:not-")
        result = hsqueue("enqueue", root, env={"HSQ_REDIS_URL": wrong})
    assert_one_line(result, FAULT, "refuses the login")


def test_a_missing_run(tmp_path: Path) -> None:
    for command in ("status", "verify", "enqueue"):
        assert_one_line(hsqueue(command, tmp_path / "nowhere"), FAULT, "nowhere")


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A mount that nobody can write to, not even root."""
    place = tmp_path / "volume"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "none", place], check=False, capture_output=True).returncode:
        pytest.skip("mounting needs root")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def test_a_read_only_volume(prompts: Path, read_only: Path) -> None:
    result = hsqueue("plan", prompts, "--out", read_only / "run")
    assert_one_line(result, FAULT, "cannot be written")


def test_a_volume_that_went_read_only_half_way(tmp_path: Path) -> None:
    """What is done stays done; the worker pauses and goes on when the volume is back."""
    place = tmp_path / "volume"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "none", place], check=False, capture_output=True).returncode:
        pytest.skip("mounting needs root")
    try:
        _fill_and_free(tmp_path, place)
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def _fill_and_free(tmp_path: Path, place: Path) -> None:
    from tests.support.cli import start

    count = 60
    prompts = token_prompts(tmp_path / "prompts.jsonl", [20 + k for k in range(count)])
    root, log = place / "run", tmp_path / "run.log"
    # The embedded Redis lies on the mount as well and must survive, so only the samples' part is closed.
    process = start(
        "run",
        prompts,
        "--out",
        root,
        "--shard-size",
        "10",
        "--engine-options",
        "--misbehave '{\"slow\": 1.5}'",
        log=log,
    )
    samples = root / "samples"
    await_true(lambda: len(published(root)) >= 5, "nothing is published", meanwhile=lives(process, log))
    subprocess.run(["mount", "--bind", samples, samples], check=True)
    subprocess.run(["mount", "-o", "remount,ro,bind", samples], check=True)
    paused = root / "logs" / "gpu0.log"
    await_true(lambda: "paused:" in paused.read_text(), "it does not pause", meanwhile=lives(process, log))
    assert "cannot be written" in paused.read_text()
    subprocess.run(["umount", samples], check=True)
    assert process.wait(120) == 0, log.read_text() + paused.read_text()
    assert published(root) == set(range(count))


def test_a_dump_directory_that_is_not_the_engines(tmp_path: Path, server: Engine) -> None:
    with redis_server(tmp_path / "redis") as redis, engine(tmp_path, name="other") as other:
        result = hsqueue(
            "worker", "--engine", server.url, "--dump-dir", other.dump_dir, env={"HSQ_REDIS_URL": redis.url}
        )
        assert_one_line(result, FAULT, "belongs to another engine", "HSQ_DUMP_DIR")
        copied = tmp_path / "copied"
        copied.mkdir()
        (copied / "engine.json").write_bytes((server.dump_dir / "engine.json").read_bytes())
        result = hsqueue("worker", "--engine", server.url, "--dump-dir", copied, env={"HSQ_REDIS_URL": redis.url})
        assert_one_line(result, FAULT, "its dump did not appear", "HSQ_DUMP_DIR")


def test_doctor_names_what_is_wrong_and_what_is_right(tmp_path: Path, server: Engine) -> None:
    with redis_server(tmp_path / "redis") as redis:
        good = hsqueue(
            "doctor", "--engine", server.url, "--dump-dir", server.dump_dir, "--volume", tmp_path,
            env={"HSQ_REDIS_URL": redis.url},
        )  # fmt: skip
    assert good.status == 0, good.text
    assert "a probe's dump came through" in good.out
    bad = hsqueue("doctor", "--engine", server.url, "--dump-dir", tmp_path / "none", "--volume", tmp_path / "none")
    assert bad.status == FAULT
    assert "BAD   volume" in bad.out
    assert "BAD   engine" in bad.out
    assert "Traceback" not in bad.text


def test_a_setting_that_makes_no_sense(tmp_path: Path, prompts: Path) -> None:
    result = hsqueue("plan", prompts, "--out", tmp_path / "run", env={"HSQ_LEASE_TTL": "soon"})
    assert_one_line(result, USAGE, "HSQ_LEASE_TTL", "soon")


def test_an_unknown_option_is_wrong_usage(tmp_path: Path) -> None:
    assert hsqueue("status", tmp_path, "--frobnicate").status == USAGE
    assert list(tmp_path.iterdir()) == []


def test_a_directory_of_somebody_elses_is_not_made_a_run(tmp_path: Path, prompts: Path) -> None:
    mine = tmp_path / "mine"
    (mine / "logs").mkdir(parents=True)
    (mine / "logs" / "train.log").write_text("precious")
    assert_one_line(hsqueue("plan", prompts, "--out", mine), USAGE, "not empty", "logs")
    assert (mine / "logs" / "train.log").read_text() == "precious"
    file = tmp_path / "file"
    file.touch()
    assert_one_line(hsqueue("plan", prompts, "--out", file), USAGE, "is a file")


def test_the_hint_after_a_deep_check_repairs_what_it_found(tmp_path: Path) -> None:
    root = tmp_path / "run"
    prompts = token_prompts(tmp_path / "prompts.jsonl", [20, 30, 40])
    arguments = ("run", prompts, "--out", root)
    assert hsqueue(*arguments).status == 0
    path = next(root.glob("samples/*/*/000000000001.safetensors"))
    damaged = bytearray(path.read_bytes())
    damaged[-500] ^= 1
    path.write_bytes(damaged)
    found = hsqueue("verify", root, "--deep")
    assert found.status == FAULT
    hint = next(line for line in found.out.splitlines() if line.startswith("to ask for the wrong ones again:"))
    assert hsqueue(*hint.split()[hint.split().index("hsqueue") + 1 :]).status == 3
    assert published(root) == {0, 2}
    assert hsqueue(*arguments).status == 0
    assert hsqueue("verify", root, "--deep").status == 0


def test_what_a_run_cannot_understand_is_said_before_it_plans(tmp_path: Path, prompts: Path) -> None:
    root = tmp_path / "run"
    for option, value in (("--engine-options", "'open"), ("--dump-layout", "foo"), ("--engine", "localhost")):
        assert_one_line(hsqueue("run", prompts, "--out", root, option, value), USAGE)
        assert not root.exists()
    assert_one_line(hsqueue("plan", prompts, "--out", root, "--max-length", "0"), USAGE, "max-length")


def test_an_engine_that_refuses_its_options_is_not_started_again(tmp_path: Path, prompts: Path) -> None:
    result = hsqueue("run", prompts, "--out", tmp_path / "run", "--engine-options", "--frobnicate")
    assert_one_line(result, FAULT, "engine0 does not start", "frobnicate")
