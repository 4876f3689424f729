"""The units load without a warning, and an engine and its worker fit together."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from hsqueue.queue.app import make_app

UNITS = [
    "hsqueue.target",
    "hsqueue-redis.service",
    "hsqueue-flower.service",
    "hsqueue-exporter.service",
    "hsqueue-sglang@.service",
    "hsqueue-worker@.service",
]
PAIR = ["hsqueue-sglang@.service", "hsqueue-worker@.service"]
SOFT_SHUTDOWN: float = make_app("redis://127.0.0.1/0").conf.worker_soft_shutdown_timeout

SEPARATING = {
    "RemoveIPC": "yes",
    "DynamicUser": "yes",
    "TemporaryFileSystem": "",
    "RootDirectory": "",
    "RootImage": "",
}
"""Directives that would take /dev/shm from one of the two, and the value that does; "" is any."""


def options(text: str) -> dict[str, list[str]]:
    """``{directive: values}`` of a unit, continued lines joined."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, value in re.findall(r"^(\w+)=(.*)$", re.sub(r"\\\n\s*", "", text), re.MULTILINE):
        found[name].append(value)
    return found


def separations(text: str) -> list[str]:
    """Directives of a unit that break the sharing of /dev/shm."""
    return [
        name
        for name, values in options(text).items()
        if name in SEPARATING and (not SEPARATING[name] or SEPARATING[name] in values)
    ]


def verify(units: Path, unit: str) -> str:
    """What systemd-analyze has to say about a unit, nothing where all is well."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    done = subprocess.run(
        [program, "verify", unit.replace("@.", "@0.")],
        cwd=units,
        env={"PATH": "/usr/bin:/bin", "SYSTEMD_UNIT_PATH": f"{units}:"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    said = done.stdout + done.stderr
    return said or ("" if done.returncode == 0 else f"exit status {done.returncode}")


@pytest.fixture
def units(root: Path, tmp_path: Path) -> Path:
    """A copy of the units whose programs exist; the real ones are installed on the cluster only."""
    for unit in UNITS:
        text = (root / "ops/systemd" / unit).read_text()
        (tmp_path / unit).write_text(re.sub(r"/opt/hsqueue/bin/[\w.-]+", "/bin/true", text))
    return tmp_path


def test_every_unit_is_tested(root: Path) -> None:
    assert {path.name for path in (root / "ops/systemd").iterdir()} == set(UNITS)


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_accepts(units: Path, unit: str) -> None:
    assert verify(units, unit) == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [("NoNewPrivileges=yes", "NoNewPrivilege=yes"), ("/bin/true", "/no/such/program"), ("=mixed", "=gently")],
)
def test_systemd_notices(units: Path, old: str, new: str) -> None:
    unit = units / "hsqueue-worker@.service"
    unit.write_text(unit.read_text().replace(old, new))
    assert verify(units, unit.name) != ""


@pytest.mark.parametrize("unit", PAIR)
def test_nothing_separates_engine_and_worker(root: Path, unit: str) -> None:
    text = (root / "ops/systemd" / unit).read_text()
    assert separations(text) == []
    for name, value in SEPARATING.items():
        assert separations(f"{text}\n{name}={value or '/dev/shm'}\n") == [name]


def test_engine_and_worker_meet(root: Path) -> None:
    engine, worker = (options((root / "ops/systemd" / unit).read_text()) for unit in PAIR)
    served = re.search(r"HSQ_DUMP_DIR=(\S+) .* --host (\S+) --port (\S+)", engine["ExecStart"][0])
    used = re.search(r"--engine http://(\S+):(\S+) --dump-dir (\S+)", worker["ExecStart"][0])
    assert served
    assert used
    assert served.groups() == (used[3], used[1], used[2])
    assert "%i" in used[3]
    assert used[3] in engine["ExecStartPre"][0]
    assert used[1] == "127.0.0.1"
    assert engine["User"] == worker["User"]
    assert not any("HSQ_DUMP_DIR" in value for value in engine["Environment"]), "the environment file would beat it"


def test_worker_may_finish(root: Path) -> None:
    worker = options((root / "ops/systemd" / "hsqueue-worker@.service").read_text())
    assert "REMAP_SIGTERM=SIGQUIT" in worker["Environment"]
    assert worker["KillSignal"] == ["SIGTERM"]
    assert worker["KillMode"] == ["mixed"]
    assert float(worker["TimeoutStopSec"][0]) > SOFT_SHUTDOWN + 10
    assert any("hsqueue-sglang@%i.service" in after for after in worker["After"])


@pytest.mark.parametrize("unit", [unit for unit in UNITS if unit.endswith(".service")])
def test_services_are_confined_and_restarted(root: Path, unit: str) -> None:
    found = options((root / "ops/systemd" / unit).read_text())
    assert found["NoNewPrivileges"] == ["yes"]
    assert found["ProtectSystem"][0] in ("full", "strict")
    assert found["CapabilityBoundingSet"] == [""]
    assert found["User"] == ["hsqueue"]
    assert found["Restart"] == ["always"]
    assert found["EnvironmentFile"] == ["/etc/hsqueue/hsqueue.env"]
    assert found["PartOf"] == found["WantedBy"] == ["hsqueue.target"]


def test_uses_only_variables_that_are_explained(root: Path, environment_file: dict[str, tuple[str, bool]]) -> None:
    used = {
        name
        for unit in UNITS
        for line in options((root / "ops/systemd" / unit).read_text()).values()
        for name in re.findall(r"\$\{?([A-Z][A-Z0-9_]+)", " ".join(line))
    }
    assert {"HSQ_MODEL", "SGLANG_ARGS", "HSQ_FLOWER_PASSWORD"} <= used
    assert used <= environment_file.keys()
