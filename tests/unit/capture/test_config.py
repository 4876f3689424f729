from __future__ import annotations

from pathlib import Path

import pytest

from hscapture.config import CaptureSettings, from_environment
from hsqueue.contracts.errors import UsageError


def test_an_empty_environment_gives_the_defaults() -> None:
    assert from_environment({}) == CaptureSettings()
    assert from_environment({"HSQ_DUMP_DIR": "", "HSQ_WRITERS": "", "HSQ_DUMP_LIMIT": ""}) == CaptureSettings()


def test_every_variable_is_read() -> None:
    assert from_environment(
        {
            "HSQ_DUMP_DIR": "/data/dumps", "HSQ_LAYERS": "1,2", "HSQ_NORM": "both", "HSQ_CAPTURE": "all",
            "HSQ_WRITERS": "3", "HSQ_DUMP_PENDING_BYTES": "1000", "HSQ_DUMP_LIMIT": "5000",
            "HSQ_DUMP_WAIT": "0", "HSQ_DUMP_TTL": "60",
        }
    ) == CaptureSettings(Path("/data/dumps"), "1,2", "both", "all", 3, 1000, 5000, 0, 60)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HSQ_NORM", "none"),
        ("HSQ_CAPTURE", "some"),
        ("HSQ_WRITERS", "0"),
        ("HSQ_WRITERS", "two"),
        ("HSQ_DUMP_PENDING_BYTES", "-1"),
        ("HSQ_DUMP_LIMIT", "1GiB"),
        ("HSQ_DUMP_LIMIT", "²"),
        ("HSQ_DUMP_WAIT", "-1"),
        ("HSQ_DUMP_TTL", "0"),
    ],
)
def test_a_wrong_value_is_named_with_its_variable(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=name):
        from_environment({name: value})


@pytest.mark.parametrize(
    ("capture", "rid", "wanted"),
    [("hsq", "hsq.r.1.2.0", True), ("hsq", "HEALTH_CHECK_1", False), ("hsq", "xhsq.r", False), ("all", "x", True)],
)
def test_only_own_requests_are_captured_unless_all_are(capture: str, rid: str, wanted: bool) -> None:
    assert CaptureSettings(capture=capture).wants(rid) is wanted
