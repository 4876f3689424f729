"""Programs that some tests need and that pip does not bring."""

from __future__ import annotations

import os
import shutil

import pytest


def program(name: str) -> str:
    """Where `name` is. Without it the test is skipped, or fails where HSQ_TEST_TOOLS=required, as in CI."""
    path = shutil.which(name)
    if path is not None:
        return path
    text = f"{name} is not installed; as root, make tools installs it"
    if os.environ.get("HSQ_TEST_TOOLS") == "required":
        pytest.fail(text)
    pytest.skip(text)
