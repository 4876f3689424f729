"""Rules and dashboard speak of metrics that exist, and Prometheus' own tool accepts them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest

from hsqueue.monitoring.exporter import STAGES, of_meters, of_runs, of_troubles, of_workers
from hsqueue.monitoring.troubles import KINDS
from tests.support.tools import program
from tests.unit.docs.markdown import own, read, rows
from tests.unit.monitoring.test_exporter import registry_of_one_run

COUNTERS = ("_total",)
HISTOGRAM = ("_bucket", "_sum", "_count")
OTHERS = {"up", "ALERTS"}


@pytest.fixture(scope="module")
def exported() -> dict[str, str]:
    """Every metric and its type, as Prometheus reads their names."""
    families = [*of_runs(()), *of_troubles({}), *of_workers(()), *of_meters({})]
    found = {family.metric.name: family.metric.type for family in families}
    names = {f"{n}_total" if kind == "counter" else n: kind for n, kind in found.items()}
    return {**names, "hsqueue_redis_up": "gauge"}


def promtool(*arguments: str | Path, cwd: Path | None = None, text: str = "") -> str:
    """What promtool says against it; nothing where all is well."""
    done = subprocess.run(
        [program("promtool"), *arguments], cwd=cwd, input=text, capture_output=True, text=True, timeout=60
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def metrics_in(expression: str) -> set[str]:
    """Names of series in an expression, without labels, functions and words of the language."""
    bare = re.sub(r'"[^"]*"|\{[^}]*\}', "", expression)
    return set(re.findall(r"\bhsqueue_\w+|\bup\b", bare))


def unknown(expression: str, exported: dict[str, str]) -> set[str]:
    """Series in an expression that nobody exports."""
    series = set(OTHERS)
    for name, kind in exported.items():
        series |= {f"{name}{end}" for end in HISTOGRAM} if kind == "histogram" else {name}
    return metrics_in(expression) - series


@pytest.fixture(scope="module")
def rules(root: Path) -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((root / "ops/prometheus/hsqueue.rules.yml").read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


@pytest.fixture(scope="module")
def dashboard(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / "ops/grafana/hsqueue.json").read_text())
    return found


def expressions(dashboard: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(panel, expression) of all."""
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def test_promtool_accepts_the_configuration_and_the_rules(root: Path) -> None:
    assert promtool("check", "config", root / "ops/prometheus/prometheus.yml") == ""


def test_the_rules_pass_their_own_tests(root: Path) -> None:
    assert promtool("test", "rules", "hsqueue.rules.test.yml", cwd=root / "ops/prometheus") == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("for: 30s", "for: 9m"), ("== 1", "== 2"), ("== 0", "== 1"), ("< 0.1", "< 0.01"), ("> 600", "> 6000"),
        ("> 0.01", "> 0.5"), ("worker_gone", "worker_lost"),
    ],
)  # fmt: skip
def test_the_rules_tests_notice_a_change(root: Path, tmp_path: Path, old: str, new: str) -> None:
    for path in (root / "ops/prometheus").iterdir():
        shutil.copy(path, tmp_path)
    text = (tmp_path / "hsqueue.rules.yml").read_text()
    assert old in text
    (tmp_path / "hsqueue.rules.yml").write_text(text.replace(old, new))
    assert promtool("test", "rules", "hsqueue.rules.test.yml", cwd=tmp_path) != ""


def test_every_rule_has_a_case(root: Path, rules: list[dict[str, Any]]) -> None:
    tests = yaml.safe_load((root / "ops/prometheus/hsqueue.rules.test.yml").read_text())["tests"]
    fired = {case["alertname"] for test in tests for case in test.get("alert_rule_test", ()) if case["exp_alerts"]}
    assert fired == {rule["alert"] for rule in rules}


def test_rules_speak_of_what_is_exported(rules: list[dict[str, Any]], exported: dict[str, str]) -> None:
    for rule in rules:
        assert unknown(rule["expr"], exported) == set(), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "description"}, rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning"), rule["alert"]


def test_every_kind_of_trouble_has_a_rule(rules: list[dict[str, Any]]) -> None:
    """A full dump directory has one of its own, which is earlier."""
    told = {kind for rule in rules for kind in re.findall(r'kind="(\w+)"', rule["expr"])}
    assert told | {"dumps_full"} == set(KINDS)


def test_the_dashboard_speaks_of_what_is_exported(dashboard: dict[str, Any], exported: dict[str, str]) -> None:
    for title, expression in expressions(dashboard):
        assert metrics_in(expression), title
        assert unknown(expression, exported) == set(), title
    for variable in dashboard["templating"]["list"][1:]:
        assert metrics_in(variable["definition"]) <= exported.keys()


def test_what_nobody_exports_is_noticed(exported: dict[str, str]) -> None:
    assert unknown('rate(hsqueue_absent_total{run="a"}[1m]) / hsqueue_request_seconds', exported) == {
        "hsqueue_absent_total", "hsqueue_request_seconds",
    }  # fmt: skip


def test_promtool_understands_the_dashboards_expressions(dashboard: dict[str, Any], tmp_path: Path) -> None:
    """As Grafana sends them, with all runs and workers chosen."""
    found = [
        {"record": f"a:{number}", "expr": text.replace("$run", ".*").replace("$worker", ".*")}
        for number, (_, text) in enumerate(expressions(dashboard))
    ]
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "a", "rules": found}]}))
    assert promtool("check", "rules", path) == ""
    path.write_text(yaml.safe_dump({"groups": [{"name": "a", "rules": [{"record": "a:b", "expr": "sum(("}]}]}))
    assert promtool("check", "rules", path) != ""


def test_the_dashboard_is_of_grafanas_form(dashboard: dict[str, Any]) -> None:
    """What Grafana needs to load one; no Grafana runs here."""
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time"} <= set(dashboard)
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
        assert panel["datasource"]["uid"] == "${datasource}", panel["title"]
        references = [target["refId"] for target in panel["targets"]]
        assert len(references) == len(set(references)), panel["title"]


def test_names_are_as_prometheus_wants_them() -> None:
    assert promtool("check", "metrics", text=generate_latest(registry_of_one_run()).decode()) == ""


def test_the_page_names_every_metric(exported: dict[str, str]) -> None:
    text = own(read("docs/reference.md"), "hsqueue exporter")
    assert sorted(re.findall(r"`(hsqueue_\w+)`", text)) == sorted(exported)
    assert {name for name, _ in STAGES.values()} <= set(exported)
    labelled = {
        name: set(re.findall(r"`(\w+)`", row[1]))
        for row in rows(text)
        if len(row) == 3
        for name in re.findall(r"`(hsqueue_\w+)`", row[0])
    }
    for family in (*of_runs(()), *of_troubles({}), *of_workers(()), *of_meters({})):
        name = f"{family.metric.name}_total" if family.metric.type == "counter" else family.metric.name
        assert labelled[name] == set(family.metric._labelnames), name  # type: ignore[attr-defined]
