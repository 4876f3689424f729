from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsqueue.contracts.errors import RunDamaged
from hsqueue.contracts.meters import STAGES
from hsqueue.contracts.sample import Ending, GivenUp, Published
from hsqueue.contracts.work import MOST_SPANS, Span, Work
from hsqueue.store.layout import RunLayout
from hsqueue.store.manifest import Manifest, make_manifest, read_manifest, seal, write_manifest

COUNTS = st.integers(0, 1 << 50)
PUBLISHED = st.builds(Published, COUNTS, COUNTS, COUNTS, st.text(max_size=8))
GIVEN_UP = st.builds(
    GivenUp, COUNTS, st.sampled_from([Ending.SKIPPED, Ending.FAILED]), COUNTS, st.text(max_size=8), st.text(max_size=8)
)
TIMES = st.floats(0, 1e12, allow_nan=False)
SPAN = st.builds(Span, st.text(max_size=8), TIMES, TIMES, COUNTS, COUNTS)
WORK = st.builds(
    Work, COUNTS, COUNTS, COUNTS, st.fixed_dictionaries(dict.fromkeys(STAGES, TIMES)),
    st.dictionaries(st.text(max_size=8), COUNTS, max_size=3), st.lists(SPAN, max_size=3).map(tuple),
)  # fmt: skip
DID = Work().opened("gpu0@node", 10.0).closed(12.0, 2, 14, {"engine": 1.5}, {"DumpMissing": 1}, False)
MANIFEST = make_manifest(
    "r1", 1, 1 << 32, "gpu0@node",
    [Published(4, 9, 900, "b" * 32), Published(3, 5, 500, "a" * 32)],
    [GivenUp(5, Ending.SKIPPED, 0, "SampleTooLong", "more tokens")], DID,
)  # fmt: skip
TABLE = {name: value for name, value in json.loads(MANIFEST.to_json()).items() if name != "checksum"}


@given(st.text(), COUNTS, COUNTS, st.text(), st.lists(PUBLISHED, max_size=4), st.lists(GIVEN_UP, max_size=4), WORK)
def test_a_manifest_comes_back_as_it_was_written(
    run: str, shard: int, fence: int, worker: str, done: list[Published], given_up: list[GivenUp],
    work: Work,
) -> None:  # fmt: skip
    manifest = make_manifest(run, shard, fence, worker, done, given_up, work)
    assert Manifest.from_json(manifest.to_json(), "m") == manifest


def test_samples_are_listed_by_index() -> None:
    assert [sample.index for sample in MANIFEST.done] == [3, 4]


def test_totals_are_those_of_the_listed_samples() -> None:
    assert (MANIFEST.tokens, MANIFEST.total_bytes) == (14, 1400)
    assert [MANIFEST.count(ending) for ending in Ending] == [2, 1, 0]


def test_a_thousand_samples_stay_below_a_hundred_kilobytes() -> None:
    done = [Published(10**11 + i, 4000, 10**9, "f" * 32) for i in range(1000)]
    work = Work()
    for _ in range(MOST_SPANS):
        work = work.opened("w" * 100, 1.7e9).closed(1.7e9, 1000, 4_000_000, {}, {}, False)
    assert len(make_manifest("r" * 32, 10**6, 1 << 60, "w" * 100, done, (), work).to_json()) < 100_000


@pytest.mark.parametrize("text", [b"", b"{", b"{}", b"[]", b"null", b"3", b'"x"', b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_manifest_is_damaged_and_names_the_file(text: bytes) -> None:
    with pytest.raises(RunDamaged, match=r"RUN/shard-000001\.json is damaged"):
        Manifest.from_json(text, "RUN/shard-000001.json")


@given(st.integers(0, len(MANIFEST.to_json()) - 1))
def test_a_manifest_cut_short_is_damaged(length: int) -> None:
    with pytest.raises(RunDamaged):
        Manifest.from_json(MANIFEST.to_json()[:length], "m")


def test_a_manifest_is_the_table_and_its_checksum() -> None:
    assert Manifest.from_json(seal(json.dumps(TABLE)), "m") == MANIFEST


@given(st.integers(0, len(MANIFEST.to_json()) - 1), st.integers(1, 255))
def test_a_changed_byte_anywhere_is_damage(place: int, change: int) -> None:
    data = bytearray(MANIFEST.to_json())
    data[place] ^= change
    with pytest.raises(RunDamaged):
        Manifest.from_json(bytes(data), "m")


@pytest.mark.parametrize("name", sorted(TABLE))
def test_a_missing_field_is_damage(name: str) -> None:
    with pytest.raises(RunDamaged):
        Manifest.from_json(seal(json.dumps({k: v for k, v in TABLE.items() if k != name})), "m")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("contract", 2), ("run", None), ("run", 1), ("shard", "1"), ("shard", -1), ("shard", True), ("fence", 1.5),
        ("worker", None), ("done", []), ("done", None), ("given_up", None), ("given_up", {"a": 1}),
        ("given_up", [[5, "skipped", 0, "x"]]), ("given_up", [[5, "lost", 0, "x", "y"]]), ("given_up", ["abcde"]),
        ("work", None), ("work", []), ("work", {}),
        ("given_up", [[5, "skipped", 0, "x", None]]), ("given_up", [[-5, "skipped", 0, "x", "y"]]),
    ],
)  # fmt: skip
def test_a_field_of_the_wrong_type_is_damage(name: str, value: object) -> None:
    with pytest.raises(RunDamaged):
        Manifest.from_json(seal(json.dumps({**TABLE, name: value})), "m")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("leases", -1), ("lost", 1.5), ("engine_downs", None), ("seconds", []), ("seconds", None),
        ("seconds", {"engine": 1.0}), ("seconds", dict.fromkeys(STAGES, -1.0)),
        ("seconds", dict.fromkeys(STAGES, float("nan"))), ("seconds", dict.fromkeys(STAGES, "1")),
        ("retries", ["DumpMissing"]), ("retries", {"DumpMissing": 1.5}), ("retries", None), ("spans", None),
        ("spans", [["gpu0", 1.0, 2.0, 3]]), ("spans", [[0, 1.0, 2.0, 3, 4]]), ("spans", [["gpu0", -1.0, 2.0, 3, 4]]),
        ("spans", [["gpu0", 1.0, float("inf"), 3, 4]]), ("spans", [["gpu0", 1.0, 2.0, 3.5, 4]]), ("spans", [7]),
        ("spans", [["gpu0", 1.0, 2.0, 3, 4]] * (MOST_SPANS + 1)), ("spans", "abc"),
    ],
)  # fmt: skip
def test_an_account_of_the_wrong_form_is_damage(name: str, value: object) -> None:
    with pytest.raises(RunDamaged):
        Manifest.from_json(seal(json.dumps({**TABLE, "work": {**TABLE["work"], name: value}})), "m")


@pytest.mark.parametrize("column", ["index", "tokens", "bytes", "digest"])
@pytest.mark.parametrize("value", [[3], [3, 4, 5], [None, None], ["3", 4], [-1, 4], [1.5, 4], 3, None, [True, 4]])
def test_a_column_that_does_not_fit_the_others_is_damage(column: str, value: object) -> None:
    with pytest.raises(RunDamaged):
        Manifest.from_json(seal(json.dumps({**TABLE, "done": {**TABLE["done"], column: value}})), "m")


def test_the_manifest_of_the_shard_has_no_problem() -> None:
    assert MANIFEST.problem("r1", 1, range(3, 6)) is None


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        (replace(MANIFEST, run="r2"), "is of run r2"),
        (replace(MANIFEST, shard=2), "shard 2"),
        (replace(MANIFEST, done=MANIFEST.done[:1]), "lists 2 samples of which 2"),
        (replace(MANIFEST, done=MANIFEST.done + MANIFEST.done[:1]), "lists 4 samples"),
        (replace(MANIFEST, given_up=()), "lists 2 samples"),
        (replace(MANIFEST, done=(Published(9, 1, 1, ""), MANIFEST.done[1])), "of which 2 are the shard's"),
        (replace(MANIFEST, given_up=(GivenUp(5, Ending.DONE, 0, "", ""),)), "as done without a file"),
        (replace(MANIFEST, given_up=(GivenUp(5, Ending.SKIPPED, 1, "DumpMissing", ""),)), "skipped for DumpMissing"),
        (replace(MANIFEST, given_up=(GivenUp(5, Ending.FAILED, 1, "SampleTooLong", ""),)), "failed for SampleTooLong"),
    ],
)
def test_a_manifest_of_something_else_says_what_is_wrong(manifest: Manifest, words: str) -> None:
    assert words in str(manifest.problem("r1", 1, range(3, 6)))


def test_a_manifest_is_written_once(tmp_path: Path) -> None:
    layout = RunLayout(tmp_path)
    assert write_manifest(layout, MANIFEST)
    assert not write_manifest(layout, replace(MANIFEST, worker="other"))
    assert read_manifest(layout.manifest(1)) == MANIFEST


def test_no_manifest_is_no_error(tmp_path: Path) -> None:
    assert read_manifest(tmp_path / "absent.json") is None
