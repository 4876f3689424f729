"""A real SGLang server as a process, with the capture plugin found as an installed package would be."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import requests

from hsqueue.contracts.card import EngineCard
from hsqueue.local.processes import die_with_parent
from hsqueue.planning.target import read_card
from tests.support.waiting import await_true, lives

ROOT = Path(__file__).resolve().parents[2]
PYTHON_VARIABLE = "HSQ_SGLANG_PYTHON"
START_SECONDS = 240.0
SHARED_MEMORY = Path("/dev/shm")
OPTIONS = (
    "--device", "cpu", "--attention-backend", "torch_native", "--dtype", "float32", "--disable-cuda-graph",
    "--mem-fraction-static", "0.1", "--max-total-tokens", "16384", "--host", "127.0.0.1",
)  # fmt: skip

OF_SEVERAL_RANKS = {
    # The cores of each rank; without it SGLang wants a NUMA node for each.
    "SGLANG_CPU_OMP_THREADS_BIND": "0|1" if (os.cpu_count() or 1) > 1 else "0|0",
    # The vocabulary's shards are masked by a compiled function, and Triton is a stand-in here.
    "TORCHDYNAMO_DISABLE": "1",
}
"""Variables without which several ranks do not run on this kind of CPU."""


@dataclass(frozen=True, slots=True)
class Server:
    """url: http://host:port. dump_dir: HSQ_DUMP_DIR. model: directory. log: of all its processes."""

    url: str
    dump_dir: Path
    model: Path
    log: Path
    process: subprocess.Popen[bytes]

    def card(self) -> EngineCard:
        return read_card(self.dump_dir)

    def info(self) -> dict[str, object]:
        found: dict[str, object] = requests.get(f"{self.url}/server_info", timeout=30).json()
        return found

    def dumps(self) -> list[str]:
        """Names of everything in the dump directory that a request left."""
        return sorted(path.name for path in self.dump_dir.iterdir() if path.name.startswith((".tmp", "req_")))

    def await_empty(self, seconds: float) -> None:
        """Returns when no request's dump is left; nobody removes any here but the server itself."""
        await_true(lambda: not self.dumps(), lambda: f"still there after {seconds} s: {self.dumps()}", seconds, 0.2)

    def resident(self) -> int:
        """Bytes of memory of all of the server's processes."""
        parent = psutil.Process(self.process.pid)
        return sum(process.memory_info().rss for process in [parent, *parent.children(recursive=True)])

    def complaints(self) -> list[str]:
        """Lines of the log in which hsqueue says that something is wrong."""
        return [line for line in self.log.read_text().splitlines() if "no dump of" in line or "not capture" in line]


def free_port() -> int:
    """One from the lower third: SGLang derives more ports by adding to it."""
    while True:
        port = random.randrange(15_000, 25_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def write_entry_points(directory: Path, mutant: bool) -> None:
    """The metadata of an installed hsqueue, with the entry points that pyproject.toml declares.

    mutant: adds the tests' own plugin, which damages capture; it is loaded first.
    """
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["sglang.srt.plugins"]
    plugins = {"a_mutant": "tests.sglang.mutant:register", **declared} if mutant else declared
    info = directory / "hsqueue-0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hsqueue\nVersion: 0\n")
    lines = [f"{name} = {target}" for name, target in plugins.items()]
    (info / "entry_points.txt").write_text("\n".join(["[sglang.srt.plugins]", *lines, ""]))


def environment(site: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """This process's environment without its HSQ_ variables, with `settings` and the packages under test."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HSQ_")}
    paths = os.pathsep.join([str(site), str(ROOT), str(ROOT / "workers")])
    return {**inherited, "PYTHONPATH": paths, "SGLANG_USE_CPU_ENGINE": "1", "OMP_NUM_THREADS": "2", **settings}


@contextlib.contextmanager
def sglang_server(
    model: Path,
    directory: Path,
    *options: str,
    settings: Mapping[str, str] | None = None,
    dump_dir: Path | None = None,
    mutant: bool = False,
    warmup: bool = False,
) -> Iterator[Server]:
    """Serves `model` until the block ends. settings: HSQ_ variables beside HSQ_DUMP_DIR.

    warmup: SGLang's own first request, which costs time.
    """
    directory.mkdir(parents=True, exist_ok=True)
    port, log = free_port(), directory / "server.log"
    place = dump_dir or directory / "dumps"
    write_entry_points(directory / "site", mutant)
    command = [
        os.environ[PYTHON_VARIABLE], "-m", "sglang.launch_server", "--model-path", str(model), "--port", str(port),
        *OPTIONS, *(() if warmup else ("--skip-server-warmup",)), *options,
    ]  # fmt: skip
    # SGLang ends by killing itself, and leaves its sockets behind.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        ours = {"HSQ_DUMP_DIR": str(place), "TMPDIR": temporary, **(settings or {})}
        process = start(command, directory, environment(directory / "site", ours), log)
        server = Server(f"http://127.0.0.1:{port}", place, model, log, process)
        try:
            wait_until_ready(server)
            yield server
        finally:
            stop(process)


def start(command: list[str], directory: Path, variables: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            env=variables,
            # A checkout's own metadata, which may be stale, would come first in the search for plugins.
            cwd=directory,
            start_new_session=True,
            # Tests that are killed must not leave a server behind.
            preexec_fn=die_with_parent,
        )


def wait_until_ready(server: Server) -> None:
    """Returns when the server answers; fails with the end of its log when it ends or takes too long."""

    def answers() -> bool:
        with contextlib.suppress(requests.RequestException):
            return requests.get(f"{server.url}/model_info", timeout=5).status_code == 200
        return False

    await_true(
        answers, lambda: f"SGLang was not ready in time:\n{server.log.read_text(errors='replace')[-3000:]}",
        START_SECONDS, pause=0.5, meanwhile=lives(server.process, server.log),
    )  # fmt: skip


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends the server and all of its children, and nothing else: they are a process group of their own."""
    children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    shared = shared_memory([psutil.Process(process.pid), *children]) if children else set()
    # Only the first process: a child that ends before it counts as a crash, which is then looked into at length.
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)
    _, alive = psutil.wait_procs(children, timeout=10)
    for child in alive:
        child.kill()
    for path in shared:
        path.unlink(missing_ok=True)


def shared_memory(family: list[psutil.Process]) -> set[Path]:
    """Files right in /dev/shm that these processes have mapped; SGLang leaves them there. Dumps lie in directories.

    By their inodes: a semaphore is mapped under another name than it ends up with.
    """
    mapped = set()
    for process in family:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
            mapped |= {int(line.split()[4]) for line in lines if f" {SHARED_MEMORY}/" in line}
    with os.scandir(SHARED_MEMORY) as entries:
        return {Path(entry.path) for entry in entries if entry.inode() in mapped and entry.is_file()}
