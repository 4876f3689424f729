"""The manifests fit Kubernetes' own schemas, and what matters for safety holds and is noticed when it does not."""

from __future__ import annotations

import copy
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from hsqueue.queue.app import make_app
from hsqueue.settings import Settings

Tree = dict[str, Any]

OLDEST = "1.29"
"""The first version whose sidecars work without a feature gate."""
SOFT_SHUTDOWN: float = make_app("redis://127.0.0.1/0").conf.worker_soft_shutdown_timeout

MANIFESTS = ["redis.yaml", "head.yaml", "gpu.yaml"]


@pytest.fixture(scope="module")
def manifests(root: Path) -> list[Tree]:
    return [
        document for name in MANIFESTS for document in yaml.safe_load_all((root / "ops/kubernetes" / name).read_text())
    ]


def pods(manifests: list[Tree]) -> Iterator[tuple[str, Tree]]:
    """``(name, pod spec)`` of everything that runs pods."""
    for manifest in manifests:
        if manifest["kind"] in ("Deployment", "StatefulSet"):
            yield manifest["metadata"]["name"], manifest["spec"]["template"]["spec"]


def containers(pod: Tree) -> dict[str, Tree]:
    return {c["name"]: c for c in [*pod.get("initContainers", []), *pod["containers"]]}


def directory_of(container: Tree, path: str) -> str | None:
    """The volume that holds `path` in the container."""
    for mount in container["volumeMounts"]:
        if Path(path).is_relative_to(mount["mountPath"]):
            return str(mount["name"])
    return None


def after(words: list[str], option: str) -> str:
    return words[words.index(option) + 1]


def faults(manifests: list[Tree]) -> list[str]:
    """What is wrong with the manifests, a line each."""
    found = []
    for name, pod in pods(manifests):
        if pod["securityContext"].get("runAsNonRoot") is not True:
            found.append(f"{name} may run as root")
        for container in containers(pod).values():
            if container["securityContext"].get("allowPrivilegeEscalation") is not False:
                found.append(f"{name}: {container['name']} may gain privileges")
            for variable in container.get("env", []):
                value = variable.get("value", "")
                if "PASSWORD" in variable["name"] and "secretKeyRef" not in variable.get("valueFrom", {}):
                    found.append(f"{name}: {variable['name']} does not come from a Secret")
                if re.search(r"://[^/]*:(?!\$\()[^/]*@", value):
                    found.append(f"{name}: {variable['name']} has a password in plain text")
    if any(m["kind"] == "Secret" for m in manifests):
        found.append("a Secret stands in a file")
    if any(m["kind"] == "Service" and m["metadata"]["name"] != "hsqueue-redis" for m in manifests):
        found.append("a Service that nobody needs")
    if any(m["kind"] == "Service" and m["spec"].get("type", "ClusterIP") != "ClusterIP" for m in manifests):
        found.append("Redis is published outside the cluster")
    return found + list(pair_faults(dict(pods(manifests))["hsqueue-gpu"]))


def pair_faults(pod: Tree) -> Iterator[str]:
    engine, worker = containers(pod)["sglang"], containers(pod)["worker"]
    dump_dir = after(worker["args"], "--dump-dir")
    for container in (engine, worker):
        if {"name": "HSQ_DUMP_DIR", "value": dump_dir} not in container["env"]:
            yield f"{container['name']} has another dump directory"
    name = directory_of(worker, dump_dir)
    if name is None or name != directory_of(engine, dump_dir):
        yield "the dump directory is not on a volume of both"
        return
    volume = next(v for v in pod["volumes"] if v["name"] == name).get("emptyDir", {})
    size = re.fullmatch(r"(\d+)Gi", volume.get("sizeLimit", ""))
    if volume.get("medium") != "Memory" or size is None:
        yield "the dumps are not in memory, or without a limit"
    elif int(size[1]) << 30 <= Settings.model_fields["max_dump_bytes"].default:
        yield "the dump directory holds less than HSQ_MAX_DUMP_BYTES"
    if after(worker["args"], "--engine") != f"http://127.0.0.1:{after(engine['args'], '--port')}":
        yield "the worker talks to another engine"
    if engine["resources"].get("limits") != {"nvidia.com/gpu": 1}:
        yield "the engine has no GPU of its own"
    if engine.get("restartPolicy") != "Always" or "startupProbe" not in engine:
        yield "the engine is no sidecar"
    if {"name": "REMAP_SIGTERM", "value": "SIGQUIT"} not in worker["env"]:
        yield "SIGTERM is no soft shutdown"
    if pod.get("terminationGracePeriodSeconds", 30) <= SOFT_SHUTDOWN + 10:
        yield "killed before its soft shutdown is over"


def test_every_manifest_is_tested(root: Path) -> None:
    assert {path.name for path in (root / "ops/kubernetes").iterdir()} == set(MANIFESTS)


@pytest.fixture(scope="module")
def schemas() -> ModuleType:
    """Kubernetes' own, every version since 1.25; the rules below are tested without them as well."""
    module: ModuleType = pytest.importorskip("kubernetes_validate")
    return module


def test_fits_the_schemas(manifests: list[Tree], schemas: ModuleType) -> None:
    for manifest in manifests:
        for version in (OLDEST, schemas.latest_version()):
            schemas.validate(manifest, version, strict=True)


def test_schemas_notice(manifests: list[Tree], schemas: ModuleType) -> None:
    changed = copy.deepcopy(manifests[-1])
    changed["spec"]["template"]["spec"]["initContainers"][0]["restartPolice"] = "Always"
    with pytest.raises(schemas.ValidationError):
        schemas.validate(changed, OLDEST, strict=True)


def test_holds_what_matters(manifests: list[Tree]) -> None:
    assert faults(manifests) == []


def worker(pod: Tree) -> Tree:
    return containers(pod)["worker"]


def engine(pod: Tree) -> Tree:
    return containers(pod)["sglang"]


CHANGES: dict[str, tuple[Callable[[Tree], object], str]] = {
    "as root": (lambda p: p["securityContext"].pop("runAsNonRoot"), "root"),
    "with privileges": (lambda p: worker(p)["securityContext"].pop("allowPrivilegeEscalation"), "privileges"),
    "a password in the file": (lambda p: worker(p)["env"][0].update(value="x", valueFrom={}), "Secret"),
    "a password in a URL": (lambda p: worker(p)["env"][1].update(value="redis://:x@redis:6379"), "plain text"),
    "another dump directory": (lambda p: engine(p)["env"][0].update(value="/dumps/other"), "another dump directory"),
    "dumps elsewhere": (lambda p: worker(p)["volumeMounts"].pop(0), "not on a volume of both"),
    "dumps on disk": (lambda p: p["volumes"][0]["emptyDir"].pop("medium"), "not in memory"),
    "dumps without a limit": (lambda p: p["volumes"][0]["emptyDir"].pop("sizeLimit"), "without a limit"),
    "too little room": (lambda p: p["volumes"][0]["emptyDir"].update(sizeLimit="1Gi"), "HSQ_MAX_DUMP_BYTES"),
    "another engine": (lambda p: engine(p)["args"].__setitem__(-1, "30001"), "another engine"),
    "no GPU": (lambda p: engine(p)["resources"].pop("limits"), "GPU"),
    "stopped together": (lambda p: engine(p).pop("restartPolicy"), "sidecar"),
    "hard stop": (lambda p: worker(p)["env"].pop(), "soft shutdown"),
    "too little time": (lambda p: p.pop("terminationGracePeriodSeconds"), "killed before"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_notices(manifests: list[Tree], name: str) -> None:
    change, fault = CHANGES[name]
    changed = copy.deepcopy(manifests)
    change(dict(pods(changed))["hsqueue-gpu"])
    assert any(fault in line for line in faults(changed)), faults(changed)


@pytest.mark.parametrize(
    "added",
    [
        {"kind": "Secret", "metadata": {"name": "hsqueue"}, "stringData": {"redis-password": "x"}},
        {"kind": "Service", "metadata": {"name": "hsqueue-flower"}, "spec": {}},
        {"kind": "Service", "metadata": {"name": "hsqueue-redis"}, "spec": {"type": "LoadBalancer"}},
    ],
)
def test_notices_what_should_not_be_there(manifests: list[Tree], added: Tree) -> None:
    assert len(faults([*manifests, added])) == 1


@pytest.fixture(scope="module")
def rendered(root: Path) -> list[Tree]:
    """What ``kubectl apply -k`` would send, rendered without a cluster."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    done = subprocess.run(
        [kubectl, "kustomize", str(root / "ops")], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def test_one_command_applies_it_all(root: Path, rendered: list[Tree]) -> None:
    assert {manifest["metadata"]["namespace"] for manifest in rendered} == {"hsqueue"}
    given = {m["metadata"]["name"].rpartition("-")[0]: m["data"] for m in rendered if m["kind"] == "ConfigMap"}
    assert given["hsqueue-redis"] == {n: (root / "ops" / n).read_text() for n in ("redis.conf", "redis-start.sh")}
    for name, pod in pods(rendered):
        references = re.findall(r"'(hsqueue-(?:redis|settings)-\w+)'", str(pod))
        assert len(set(references)) == 1, f"{name} uses no generated ConfigMap"


def test_what_is_applied_fits_the_schemas(rendered: list[Tree], schemas: ModuleType) -> None:
    for manifest in rendered:
        schemas.validate(manifest, OLDEST, strict=True)


def test_uses_only_variables_that_are_explained(root: Path, environment_file: dict[str, tuple[str, bool]]) -> None:
    kustomization = yaml.safe_load((root / "ops/kustomization.yaml").read_text())
    literals = [literal for g in kustomization["configMapGenerator"] for literal in g.get("literals", [])]
    assert literals
    assert {literal.partition("=")[0] for literal in literals} <= environment_file.keys()
