"""The Slurm job, played through on this machine: stand-ins for Slurm and SGLang, the real scripts and a real Redis."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.waiting import await_true, lives

SCRIPTS = ["ops/slurm/hsqueue.sbatch", "ops/slurm/pair.sh", "ops/redis-start.sh"]

SRUN = """\
#!/bin/bash
echo "srun $*" >>"$LOG"
for id in 0 1; do SLURM_LOCALID=$id "${!#}" & done
wait
"""

# A worker ends when it is told to, an engine too; the first engine of GPU 1 crashes once.
PYTHON3 = """\
#!/bin/bash
trap 'echo "engine $HSQ_DUMP_DIR stopped" >>"$LOG"; kill $!; exit 0' TERM
echo "engine $HSQ_DUMP_DIR $*" >>"$LOG"
[[ $HSQ_DUMP_DIR == *-1 && ! -e $LOG.crashed ]] && { touch "$LOG.crashed"; exit 9; }
sleep 60 &
wait
"""

HSQUEUE = """\
#!{python}
import os, pathlib, signal, socket, sys
import redis

log = pathlib.Path(os.environ["LOG"])
def say(line):
    with log.open("a") as file:
        file.write(line + "\\n")

say("hsqueue " + " ".join(sys.argv[1:]))
if sys.argv[1] == "enqueue":
    redis.Redis.from_url(os.environ["HSQ_REDIS_URL"].replace(socket.gethostname(), "127.0.0.1")).ping()
if sys.argv[1] == "status":
    sys.exit(0 if log.with_suffix(".complete").exists() else 3)
if sys.argv[1] == "worker":
    def stop(*_):
        say(f"worker {{os.environ['HSQ_DUMP_DIR']}} stopped, remap {{os.environ['REMAP_SIGTERM']}}")
        sys.exit(0)
    signal.signal(signal.SIGTERM, stop)
    while True:
        signal.pause()
"""


@pytest.mark.parametrize("script", SCRIPTS)
def test_shell_accepts(root: Path, script: str) -> None:
    done = subprocess.run(["bash", "-n", str(root / script)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert os.access(root / script, os.X_OK)


def test_shellcheck_accepts(root: Path) -> None:
    program = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        pytest.skip("shellcheck is not installed")
    done = subprocess.run([program, *SCRIPTS], cwd=root, capture_output=True, text=True)
    assert done.stdout == ""


class Job:
    """The batch script under way. log: what the stand-ins said."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self.log = process, log

    def said(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def until(self, true: Callable[[list[str]], bool]) -> None:
        await_true(lambda: true(self.said()), lambda: f"{self.said()}", meanwhile=lives(self.process, self.log))


@pytest.fixture
def start(root: Path, tmp_path: Path, redis_server: str) -> Iterator[Callable[[], Job]]:
    programs, run, log = tmp_path / "bin", tmp_path / "run", tmp_path / "log"
    programs.mkdir()
    run.mkdir()
    for name, text in {"srun": SRUN, "python3": PYTHON3, "hsqueue": HSQUEUE.format(python=sys.executable)}.items():
        (programs / name).write_text(textwrap.dedent(text))
        (programs / name).chmod(0o755)
    started: list[subprocess.Popen[bytes]] = []

    def run_it() -> Job:
        process = subprocess.Popen(
            [str(root / "ops/slurm/hsqueue.sbatch"), str(run), "/models/m"],
            env={
                "PATH": f"{programs}:/usr/bin:/bin",
                "TMPDIR": str(tmp_path),
                "SLURM_JOB_ID": str(os.getpid()),
                "SLURM_SUBMIT_DIR": str(root),
                "REDIS_SERVER": redis_server,
                "HSQ_POLL_SECONDS": "0.1",
                "LOG": str(log),
            },
            stdout=(tmp_path / "output").open("wb"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        started.append(process)
        return Job(process, log)

    yield run_it
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def leftovers(job: Job) -> list[str]:
    """Processes of the job's session, and directories, that outlived it."""
    alive = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(session) == job.process.pid and state != "Z":
            alive.append(stat.parent.name)
    directories = [*Path("/dev/shm").glob(f"hsqueue-{os.getpid()}-*"), *job.log.parent.glob("hsqueue-*")]
    return alive + [str(path) for path in [*directories, *job.log.parent.glob("run/*")]]


def test_runs_until_the_run_is_complete(start: Callable[[], Job]) -> None:
    job = start()
    job.until(lambda said: sum(line.startswith("engine") for line in said) >= 3)
    job.until(lambda said: sum(line.startswith("hsqueue worker") for line in said) == 2)
    job.log.with_suffix(".complete").touch()
    assert job.process.wait(30) == 0, job.said()
    said = job.said()

    assert said[0] == f"hsqueue enqueue {job.log.parent / 'run'}"
    engines = re.findall(r"^engine (\S+) -m sglang.launch_server .*--port (\d+)", "\n".join(said), re.MULTILINE)
    workers = re.findall(
        r"^hsqueue worker --engine http://127.0.0.1:(\d+) --dump-dir (\S+) --name (\S+)", "\n".join(said), re.MULTILINE
    )
    assert {(port, directory) for directory, port in engines} == {(port, where) for port, where, _ in workers}
    assert sorted(name for _, _, name in workers) == ["gpu0", "gpu1"]
    assert len(engines) == 3, "the engine that crashed was started again, with the same directory and port"
    for _, directory, _ in workers:
        ends = [line for line in said if line.startswith((f"worker {directory}", f"engine {directory} stopped"))]
        assert ends == [f"worker {directory} stopped, remap SIGQUIT", f"engine {directory} stopped"]
    assert leftovers(job) == []


def test_stops_in_time(start: Callable[[], Job]) -> None:
    job = start()
    job.until(lambda said: sum(line.startswith(("engine", "hsqueue worker")) for line in said) >= 4)
    job.process.send_signal(signal.SIGUSR1)
    assert job.process.wait(30) == 3
    assert sum("stopped, remap" in line for line in job.said()) == 2
    assert leftovers(job) == []


def test_starts_no_engine_for_a_complete_run(start: Callable[[], Job], tmp_path: Path) -> None:
    (tmp_path / "log.complete").touch()
    job = start()
    assert job.process.wait(30) == 0
    assert not any(line.startswith(("srun", "engine")) for line in job.said())
    assert leftovers(job) == []


def test_gives_time_to_stop(root: Path) -> None:
    text = (root / SCRIPTS[0]).read_text()
    signalled = re.search(r"^#SBATCH --signal=B:USR1@(\d+)$", text, re.MULTILINE)
    assert signalled
    # A minute in which NFS may not show the file, the soft shutdown, and an engine's end.
    assert int(signalled[1]) >= 60 + 30 + 60


def test_does_not_lend_a_password_to_the_process_list(root: Path) -> None:
    for script in SCRIPTS:
        assert "--requirepass" not in (root / script).read_text()
