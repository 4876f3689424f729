from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsqueue.contracts.rid import PREFIX, RequestId, dump_directory_name, parse_rid

RIDS = st.builds(
    RequestId,
    run=st.from_regex(r"[a-z0-9][a-z0-9-]{0,31}", fullmatch=True),
    index=st.integers(0, 10**15 - 1),
    fence=st.integers(0, (1 << 64) - 1),
    attempt=st.integers(0, 999_999),
)


@given(RIDS)
def test_parsing_gives_back_what_was_written(rid: RequestId) -> None:
    assert parse_rid(str(rid)) == rid


@given(RIDS)
def test_every_rid_starts_with_the_prefix_that_the_plugin_looks_for(rid: RequestId) -> None:
    assert str(rid).startswith(PREFIX)


@given(RIDS, RIDS)
def test_different_requests_have_different_directories(one: RequestId, other: RequestId) -> None:
    assert (one.directory == other.directory) == (one == other)


@given(RIDS)
def test_a_directory_is_one_short_plain_name(rid: RequestId) -> None:
    assert PurePosixPath(rid.directory).name == rid.directory
    assert len(rid.directory.encode()) <= 255


@given(st.text())
def test_no_text_makes_the_parser_raise(text: str) -> None:
    found = parse_rid(text)
    assert found is None or text.startswith(PREFIX)


@pytest.mark.parametrize(
    "text",
    [
        "", "hsq", "hsq.", "hsq.r.1.2", "hsq.r.1.2.3.4", "hsq..1.2.3", "HSQ.r.1.2.3", "hsq.R.1.2.3", "hsq.-r.1.2.3",
        "hsq.r.-1.2.3", "hsq.r.1.2.3\n", "\nhsq.r.1.2.3", " hsq.r.1.2.3", "hsq.r.1.2.3/..", "hsq.r.1.2.٣",
        "hsq.ſ.1.2.3", "hsq.r.1.2.", "hsq.r.1e3.2.3", "hsq.r.1_0.2.3", "hsq." + "r" * 33 + ".1.2.3",
        "hsq.r." + "9" * 16 + ".2.3", "hsq.r.1." + "9" * 21 + ".3", "hsq.r.1.2." + "9" * 7, "hsq.r.\x001.2.3",
    ],
)  # fmt: skip
def test_a_foreign_rid_is_none_of_ours(text: str) -> None:
    assert parse_rid(text) is None


@pytest.mark.parametrize(
    "rid", ["", ".", "..", "../x", "a/b", "/etc", "a..b", ".hidden", "a\x00b", "a\nb", "a b", "ä", "-rf", "a" * 201]
)
def test_a_rid_that_could_leave_the_dump_directory_is_refused(rid: str) -> None:
    with pytest.raises(ValueError, match="not safe as a directory name"):
        dump_directory_name(rid)


@given(st.text(max_size=300))
def test_a_directory_name_is_refused_or_stays_inside(rid: str) -> None:
    try:
        name = dump_directory_name(rid)
    except ValueError:
        return
    assert name == f"req_{rid}"
    assert PurePosixPath("/dumps", name).parent == PurePosixPath("/dumps")
    assert len(name.encode()) <= 255
