"""A real Prometheus, with hsqueue's own rules, that looks every second."""

from __future__ import annotations

import contextlib
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from hsqueue.local.processes import die_with_parent
from tests.support.redis import free_port
from tests.support.tools import program
from tests.support.waiting import await_true

OPS = Path(__file__).resolve().parents[2] / "ops" / "prometheus"


@dataclass(frozen=True, slots=True)
class Prometheus:
    url: str

    def ask(self, expression: str) -> dict[tuple[str, ...], float]:
        """Value of each series by its labels' values, without those that Prometheus adds; labels in order of name."""
        reply = requests.get(f"{self.url}/api/v1/query", params={"query": expression}, timeout=10).json()
        assert reply["status"] == "success", reply
        found = {}
        for series in reply["data"]["result"]:
            labels = {k: v for k, v in series["metric"].items() if k not in ("__name__", "instance", "job")}
            found[tuple(value for _, value in sorted(labels.items()))] = float(series["value"][1])
        return found

    def number(self, expression: str) -> float | None:
        """Of the only series; None where there is none."""
        found = self.ask(expression)
        assert len(found) <= 1, found
        return next(iter(found.values()), None)

    def firing(self) -> list[dict[str, Any]]:
        """Alerts, by their labels."""
        alerts = requests.get(f"{self.url}/api/v1/alerts", timeout=10).json()["data"]["alerts"]
        return [alert["labels"] for alert in alerts if alert["state"] == "firing"]

    def until(self, condition: Callable[[], object], what: str) -> float:
        """Seconds until `condition` holds."""
        began = time.monotonic()
        await_true(condition, what, pause=0.1)
        return time.monotonic() - began


@contextlib.contextmanager
def prometheus(directory: Path, target: str) -> Iterator[Prometheus]:
    """Scrapes `target`, HOST:PORT, as ops/ has it, but every second and with rules that fire at once."""
    executable = program("prometheus")
    config = (OPS / "prometheus.yml").read_text().replace("127.0.0.1:9808", target)
    (directory / "prometheus.yml").write_text(re.sub(r"_interval: \w+", "_interval: 1s", config))
    rules = (OPS / "hsqueue.rules.yml").read_text()
    (directory / "hsqueue.rules.yml").write_text(re.sub(r"for: \w+", "for: 0s", rules))
    port = free_port()
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                executable, f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/data",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log, stderr=log, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent,
        )  # fmt: skip
    made = Prometheus(f"http://127.0.0.1:{port}")
    try:
        made.until(lambda: _answers(made, process, directory), "Prometheus did not start")
        yield made
    finally:
        process.terminate()
        process.wait(30)


def _answers(made: Prometheus, process: subprocess.Popen[bytes], directory: Path) -> bool:
    assert process.poll() is None, (directory / "prometheus.log").read_text()[-2000:]
    with contextlib.suppress(requests.RequestException):
        return requests.get(f"{made.url}/-/ready", timeout=5).status_code == 200
    return False
