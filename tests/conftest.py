"""For all tests: a machine that is busy with other work makes no property false."""

import pytest
from hypothesis import settings

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--screenshots", help="directory for pictures of the pages, which tests/browser takes")
