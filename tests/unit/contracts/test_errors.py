from __future__ import annotations

import pytest

from hsqueue.contracts import errors
from hsqueue.contracts.errors import EngineDown, HsqueueError, Kind, RetryError, SkipError, StopError

ALL = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, HsqueueError)]


def test_an_error_is_one_line_with_everything_that_is_known() -> None:
    error = HsqueueError("rows differ", expected=4710, found=1283, sample="hsq.r.1.2.3", do="Try again.")
    assert str(error) == "rows differ; expected 4710, found 1283; sample hsq.r.1.2.3. Try again."


def test_what_is_not_known_is_left_out() -> None:
    assert str(HsqueueError("rows differ")) == "rows differ"


def test_a_found_value_of_zero_is_still_said() -> None:
    assert str(HsqueueError("rows differ", expected=0, found=0)) == "rows differ; expected 0, found 0"


@pytest.mark.parametrize("error", ALL, ids=lambda e: e.__name__)
def test_every_error_has_a_kind_that_its_family_says(error: type[HsqueueError]) -> None:
    family = {RetryError: Kind.RETRY, SkipError: Kind.SKIP, EngineDown: Kind.ENGINE_DOWN, StopError: Kind.STOP}
    kinds = {kind for base, kind in family.items() if issubclass(error, base)} or {Kind.STOP}
    assert {error.kind} == kinds
    assert error("x").name == error.__name__
