"""compose.yaml is valid, and what matters for safety holds and is noticed when it does not."""

from __future__ import annotations

import copy
import importlib.resources
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from jsonschema.validators import validator_for

from hsqueue.queue.app import make_app
from hsqueue.settings import Settings

Tree = dict[str, Any]

FILLED = {
    "HSQ_REDIS_PASSWORD": "redis-secret",
    "HSQ_FLOWER_PASSWORD": "flower-secret",
    "HSQ_VOLUME": "/volume",
    "HSQ_MODEL": "/models/m",
    "HSQ_NODE": "node1",
}
VARIABLE = re.compile(r"\$\$|\$\{(\w+)(?:(:-|:\?)([^}]*))?\}")
SOFT_SHUTDOWN: float = make_app("redis://127.0.0.1/0").conf.worker_soft_shutdown_timeout
SIZES = {"m": 1 << 20, "g": 1 << 30}


def interpolate(value: Any, environment: dict[str, str]) -> Any:
    """`value` with ``${...}`` replaced as compose does. Raises KeyError for a required variable without a value."""
    if isinstance(value, dict):
        return {key: interpolate(v, environment) for key, v in value.items()}
    if isinstance(value, list):
        return [interpolate(v, environment) for v in value]
    if not isinstance(value, str):
        return value

    def replace(match: re.Match[str]) -> str:
        name, operator, rest = match.groups()
        if name is None:
            return "$"
        if operator == ":?" and not environment.get(name):
            raise KeyError(name)
        return environment.get(name) or (rest if operator == ":-" else "")

    return VARIABLE.sub(replace, value)


def strings(value: Any) -> Iterator[str]:
    """Every string in a tree."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from strings(item)
    elif isinstance(value, str):
        yield value


def mounts(service: Tree) -> dict[str, str]:
    """``{target: source}`` of a service's volumes, of the short and the long form."""
    found = {}
    for volume in service.get("volumes", []):
        source, target = (volume["source"], volume["target"]) if isinstance(volume, dict) else volume.split(":")[:2]
        found[target] = source
    return found


def option(service: Tree, name: str) -> str:
    """The value of a command line option of a service."""
    words = service["command"] if isinstance(service["command"], list) else service["command"].split()
    return str(words[words.index(name) + 1])


def seconds(duration: str) -> float:
    match = re.fullmatch(r"(\d+)s", duration)
    assert match, f"{duration!r} is not in seconds"
    return float(match[1])


def faults(raw: Tree) -> list[str]:
    """What is wrong with the file, a line each."""
    tree = interpolate(raw, FILLED)
    services: Tree = tree["services"]
    engines = {name: s for name, s in services.items() if name.startswith("sglang-")}
    workers = {name: s for name, s in services.items() if name.startswith("worker-")}
    found: list[str] = []
    for name, service in services.items():
        found += [f"{name}: {fault}" for fault in service_faults(service, raw["services"][name])]
    if {n.removeprefix("sglang-") for n in engines} != {n.removeprefix("worker-") for n in workers} or not engines:
        return [*found, "engines and workers do not pair up"]
    for name, worker in workers.items():
        gpu = name.removeprefix("worker-")
        found += [f"{name}: {fault}" for fault in pair_faults(gpu, engines[f"sglang-{gpu}"], worker, tree)]
    if len({gpu_ids(engine) for engine in engines.values()}) < len(engines):
        found.append("two engines share a GPU")
    if len({mounts(engine).get("/dumps") for engine in engines.values()}) < len(engines):
        found.append("two engines share a volume of dumps")
    if {name for name, s in services.items() if "head" in s["profiles"]} != {"redis", "flower"}:
        found.append("the profile head is not redis and flower")
    if {name for name, s in services.items() if "monitoring" in s["profiles"]} != {"exporter", "prometheus"}:
        found.append("the profile monitoring is not the exporter and Prometheus")
    if (
        services["prometheus"].get("network_mode") != "service:exporter"
        or "--address" in services["exporter"]["command"]
    ):
        found.append("prometheus: does not find the exporter on its loopback")
    if {name for name, s in services.items() if "gpu" in s["profiles"]} != set(engines) | set(workers):
        found.append("the profile gpu is not the engines and the workers")
    if "healthcheck" not in services["redis"]:
        found.append("redis: no healthcheck")
    return found


def service_faults(service: Tree, raw: Tree) -> Iterator[str]:
    for port in service.get("ports", []):
        host, _, _ = port.rpartition(":")[0].rpartition(":")
        if host != "127.0.0.1":
            yield f"port {port} is not on loopback unless somebody asks for it"
    for name, value in (raw.get("environment") or {}).items():
        secret = name.endswith(("PASSWORD", "TOKEN"))
        if secret and not re.fullmatch(r"\$\{\w+(:\?[^}]*)?\}", value or ""):
            yield f"{name} is not taken from a required variable"
        if isinstance(value, str) and "://" in value:
            password = urlsplit(re.sub(r":\?[^}]*", "", value)).password
            if password and not re.fullmatch(r"\$\{\w+\}", password):
                yield f"{name} has a password in plain text"
    if service.get("restart") != ("no" if service["profiles"] == ["cli"] else "unless-stopped"):
        yield "wrong restart policy"
    for volume in service.get("volumes", []):
        if isinstance(volume, dict) and volume["type"] == "bind":
            if volume.get("bind", {}).get("create_host_path") is not False:
                yield f"{volume['source']} is created where it is missing"
            if volume["source"] != volume["target"]:
                yield f"{volume['source']} has another path inside"


def gpu_ids(engine: Tree) -> tuple[str, ...]:
    return tuple(engine["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"])


def pair_faults(gpu: str, engine: Tree, worker: Tree, tree: Tree) -> Iterator[str]:
    """Of the one engine and the one worker of a GPU."""
    dump_dir = option(worker, "--dump-dir")
    if {dump_dir} != {engine["environment"]["HSQ_DUMP_DIR"], worker["environment"]["HSQ_DUMP_DIR"]}:
        yield "the engine's dump directory is another"
    here, there = ({t: s for t, s in mounts(s).items() if Path(dump_dir).is_relative_to(t)} for s in (worker, engine))
    if not here or here != there:
        yield "the dump directory is not on a volume of both"
        return
    (source,) = here.values()
    volume = tree["volumes"].get(source) or {}
    options = volume.get("driver_opts", {})
    size = re.search(r"\bsize=(\d+)([mg])\b", options.get("o", ""))
    if options.get("type") != "tmpfs" or size is None:
        yield f"the volume {source} is not a tmpfs with a size"
    elif int(size[1]) * SIZES[size[2]] <= Settings.model_fields["max_dump_bytes"].default:
        yield f"the volume {source} holds less than HSQ_MAX_DUMP_BYTES"
    if option(worker, "--engine") != f"http://sglang-{gpu}:{option(engine, '--port')}":
        yield "the worker talks to another engine"
    if option(worker, "--name") != gpu:
        yield "the worker's name is not its GPU's"
    if worker["environment"].get("REMAP_SIGTERM") != "SIGQUIT":
        yield "SIGTERM is no soft shutdown"
    if seconds(worker.get("stop_grace_period", "10s")) <= SOFT_SHUTDOWN + 10:
        yield "killed before its soft shutdown is over"
    if worker.get("depends_on", {}).get(f"sglang-{gpu}", {}).get("condition") != "service_healthy":
        yield "started before its engine answers, and stopped after it"


@pytest.fixture(scope="module")
def compose(root: Path) -> Tree:
    # Through JSON, so that what shares an anchor in the file is changed in one place only.
    tree: Tree = json.loads(json.dumps(yaml.safe_load((root / "compose.yaml").read_text())))
    return tree


def test_fits_the_compose_specification(compose: Tree) -> None:
    pytest.importorskip("check_jsonschema", reason="it carries the specification's schema")
    package = importlib.resources.files("check_jsonschema.builtin_schemas.vendor")
    schema = json.loads(package.joinpath("compose-spec.json").read_text())
    validator = validator_for(schema)(schema)
    assert [error.message for error in validator.iter_errors(compose)] == []
    assert not validator.is_valid({**compose, "services": {"redis": {"imagee": "redis"}}})


def test_holds_what_matters(compose: Tree) -> None:
    assert faults(compose) == []


def test_mounts_files_that_exist(compose: Tree, root: Path) -> None:
    ours = [s for service in compose["services"].values() for s in mounts(service).values() if s.startswith("./")]
    assert ours
    assert [path for path in ours if not (root / path).is_file()] == []
    assert (root / compose["services"]["flower"]["build"]["dockerfile"]).is_file()


Change = Callable[[Tree], object]
SERVICES_CHANGED: dict[str, tuple[str, Change, str]] = {
    "Flower on every address": ("flower", lambda s: s.update(ports=["0.0.0.0:5555:5555"]), "loopback"),
    "Flower without an address": ("flower", lambda s: s.update(ports=["5555:5555"]), "loopback"),
    "Redis on every address": (
        "redis",
        lambda s: s.update(ports=["${HSQ_REDIS_BIND:-0.0.0.0}:6379:6379"]),
        "loopback",
    ),
    "a password in the file": (
        "redis",
        lambda s: s["environment"].update(HSQ_REDIS_PASSWORD="hunter2"),
        "required",
    ),
    "a password with a default": (
        "flower",
        lambda s: s["environment"].update(HSQ_FLOWER_PASSWORD="${HSQ_FLOWER_PASSWORD:-admin}"),
        "required",
    ),
    "a password in a URL": (
        "worker-gpu0",
        lambda s: s["environment"].update(HSQ_REDIS_URL="redis://:hunter2@redis:6379/0"),
        "plain text",
    ),
    "no restart": ("sglang-gpu0", lambda s: s.pop("restart"), "restart"),
    "no healthcheck of Redis": ("redis", lambda s: s.pop("healthcheck"), "healthcheck"),
    "a volume made up by Docker": ("worker-gpu0", lambda s: s["volumes"][0].pop("bind"), "created"),
    "the volume elsewhere inside": (
        "worker-gpu0",
        lambda s: s["volumes"][0].update(target="/data"),
        "another path",
    ),
    "a GPU twice": (
        "sglang-gpu1",
        lambda s: s["deploy"]["resources"]["reservations"]["devices"][0].update(device_ids=["0"]),
        "share a GPU",
    ),
    "dumps of another engine": (
        "worker-gpu0",
        lambda s: s.update(volumes=[s["volumes"][0], "dumps-gpu1:/dumps"]),
        "not on a volume",
    ),
    "dumps shared by two engines": (
        "sglang-gpu1",
        lambda s: s.update(volumes=[*s["volumes"][:2], "dumps-gpu0:/dumps"]),
        "volume of dumps",
    ),
    "dumps at another place": (
        "worker-gpu0",
        lambda s: s.update(volumes=[s["volumes"][0], "dumps-gpu0:/d"]),
        "not on a volume",
    ),
    "dumps in each one's own /dev/shm": (
        "worker-gpu0",
        lambda s: s.update(volumes=s["volumes"][:1], ipc="service:sglang-gpu0"),
        "not on a volume",
    ),
    "another dump directory": (
        "sglang-gpu0",
        lambda s: s["environment"].update(HSQ_DUMP_DIR="/dumps/other"),
        "directory is another",
    ),
    "another engine": (
        "worker-gpu1",
        lambda s: s["command"].__setitem__(2, "http://sglang-gpu0:30000"),
        "talks to",
    ),
    "a name twice": ("worker-gpu1", lambda s: s["command"].__setitem__(-1, "gpu0"), "name"),
    "hard stop": ("worker-gpu0", lambda s: s["environment"].pop("REMAP_SIGTERM"), "soft shutdown"),
    "too little time to stop": ("worker-gpu0", lambda s: s.update(stop_grace_period="30s"), "killed before"),
    "the default time to stop": ("worker-gpu0", lambda s: s.pop("stop_grace_period"), "killed before"),
    "no order": ("worker-gpu0", lambda s: s.pop("depends_on"), "before its engine"),
    "Prometheus alone": ("prometheus", lambda s: s.pop("network_mode"), "loopback"),
    "metrics for everybody": ("exporter", lambda s: s["command"].extend(["--address", "0.0.0.0"]), "loopback"),
    "Prometheus always": ("prometheus", lambda s: s.update(profiles=["head"]), "profile monitoring"),
    "not for the head": ("redis", lambda s: s.update(profiles=["gpu"]), "profile head"),
}


@pytest.mark.parametrize("name", SERVICES_CHANGED)
def test_notices(compose: Tree, name: str) -> None:
    service, change, fault = SERVICES_CHANGED[name]
    changed = copy.deepcopy(compose)
    change(changed["services"][service])
    assert any(fault in line for line in faults(changed)), faults(changed)


@pytest.mark.parametrize("o", ["mode=1777", "size=512m,mode=1777", "size=8g"])
def test_notices_a_directory_too_small_for_the_dumps(compose: Tree, o: str) -> None:
    changed = copy.deepcopy(compose)
    changed["volumes"]["dumps-gpu0"]["driver_opts"]["o"] = o
    assert any("dumps-gpu0" in line for line in faults(changed))


def test_notices_an_engine_without_a_worker(compose: Tree) -> None:
    changed = copy.deepcopy(compose)
    del changed["services"]["worker-gpu1"]
    assert "engines and workers do not pair up" in faults(changed)


@pytest.mark.parametrize("name", FILLED)
def test_asks_for_what_it_needs(compose: Tree, name: str) -> None:
    with pytest.raises(KeyError, match=name):
        interpolate(compose, {**FILLED, name: ""})


def test_explains_every_variable(compose: Tree, environment_file: dict[str, tuple[str, bool]]) -> None:
    used = {m[1]: m[3] if m[2] == ":-" else "" for s in strings(compose) for m in VARIABLE.finditer(s) if m[1]}
    handed_on = {
        name for s in compose["services"].values() for name, v in (s.get("environment") or {}).items() if v is None
    }
    assert sorted((used.keys() | handed_on) - environment_file.keys()) == []
    defaults = {name: default for name, default in used.items() if default}
    assert {name: environment_file[name][0] for name in defaults} == defaults


def compose_command() -> list[str] | None:
    """Docker Compose, the plugin or the program of its own, beside this Python or on PATH."""
    if shutil.which("docker") and subprocess.run(["docker", "compose", "version"], capture_output=True).returncode == 0:
        return ["docker", "compose"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    program = shutil.which("docker-compose", path=path)
    return [program] if program else None


@pytest.fixture(scope="module")
def docker_compose(root: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    command = compose_command()
    if command is None:
        pytest.skip("Docker Compose is not installed; the schema and the rules above are tested all the same")

    def run(*arguments: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, "-f", str(root / "compose.yaml"), *arguments],
            env={"PATH": os.environ["PATH"], **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


@pytest.mark.parametrize(
    ("profiles", "services"),
    [
        (["head"], {"redis", "flower"}),
        (["gpu"], {"sglang-gpu0", "worker-gpu0", "sglang-gpu1", "worker-gpu1"}),
        (["gpu1"], {"sglang-gpu1", "worker-gpu1"}),
        (["head", "monitoring"], {"redis", "flower", "exporter", "prometheus"}),
        (["head", "gpu0"], {"redis", "flower", "sglang-gpu0", "worker-gpu0"}),
    ],
)
def test_compose_itself_agrees(
    docker_compose: Callable[..., subprocess.CompletedProcess[str]],
    compose: Tree,
    profiles: list[str],
    services: set[str],
) -> None:
    flags = [word for profile in profiles for word in ("--profile", profile)]
    done = docker_compose(*flags, "config", "--format", "json", environment=FILLED)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    resolved = json.loads(done.stdout)["services"]
    assert set(resolved) == services
    ours = interpolate(compose, FILLED)["services"]
    for name, service in resolved.items():
        assert {v["target"]: v["source"] for v in service["volumes"] if not v["source"].endswith((".sh", ".conf"))} == {
            target: source for target, source in mounts(ours[name]).items() if not source.startswith("./")
        }


def test_compose_itself_asks(docker_compose: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = docker_compose("config", "--quiet", environment={**FILLED, "HSQ_VOLUME": ""})
    assert done.returncode != 0
    assert "HSQ_VOLUME" in done.stderr
    assert "shared volume" in done.stderr
