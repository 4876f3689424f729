"""For all tests: a machine that is busy with other work makes no property false, and nothing is left on it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.support.leftovers import left_in_memory, left_in_temporary

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--screenshots", help="directory for pictures of the pages, which tests/browser takes")


@pytest.fixture(scope="session", autouse=True)
def _leaves_nothing_behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Temporary files of these tests and of all processes that they start have a directory of their own below pytest's,
    which removes it in time. Fails where something is left there, or dumps of a run are left in memory.
    """
    place = tmp_path_factory.mktemp("tmp")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(place))
        patch.setattr(tempfile, "tempdir", None)
        yield
    base = tmp_path_factory.getbasetemp()
    assert left_in_temporary(place) == [], "in $TMPDIR"
    assert left_in_memory(base) == [], "the test that starts these runs has to resume or to clean them"
