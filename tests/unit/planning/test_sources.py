"""Which files are read, in which order, and what counts as a change."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from hsqueue.contracts.errors import UsageError
from hsqueue.planning.sources import Kind, dataset_digest, find_files, measure, require_unchanged


def touch(directory: Path, *names: str) -> None:
    for name in names:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())


def names(root: Path, sources: list[Path]) -> list[str]:
    return [str(file.path.relative_to(root)) for file in find_files(sources)]


def test_a_directory_is_searched_in_order_for_the_known_types(tmp_path: Path) -> None:
    touch(tmp_path, "b.jsonl", "a.json", "c/z.parquet", "c/a.jsonl.gz", "d.JSONL", "e.json.gz")
    touch(tmp_path, "readme.md", ".hidden.jsonl", "_cache/x.jsonl", "plan-1.tmp/x.jsonl", "dataset_infos.json")
    assert names(tmp_path, [tmp_path]) == ["a.json", "b.jsonl", "c/a.jsonl.gz", "c/z.parquet", "d.JSONL", "e.json.gz"]


def test_files_are_taken_in_the_order_they_are_named(tmp_path: Path) -> None:
    touch(tmp_path, "b.jsonl", "a.jsonl")
    assert names(tmp_path, [tmp_path / "b.jsonl", tmp_path / "a.jsonl"]) == ["b.jsonl", "a.jsonl"]


def test_kinds(tmp_path: Path) -> None:
    touch(tmp_path, "a.json", "b.jsonl.gz", "c.parquet")
    assert [file.kind for file in find_files([tmp_path])] == [Kind.JSON, Kind.JSONL, Kind.PARQUET]


@pytest.mark.parametrize(
    ("made", "named", "problem"),
    [
        ([], "missing.jsonl", "does not exist"),
        (["a.txt"], "a.txt", "no known type"),
        (["sub/a.txt"], "sub", "holds no"),
    ],
)
def test_sources_that_hold_nothing(tmp_path: Path, made: list[str], named: str, problem: str) -> None:
    touch(tmp_path, *made)
    with pytest.raises(UsageError, match=problem):
        find_files([tmp_path / named])


def test_a_directory_that_cannot_be_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(UsageError, match="cannot be searched"):
        find_files([tmp_path])


def test_a_file_named_twice_is_refused(tmp_path: Path) -> None:
    touch(tmp_path, "a.jsonl")
    with pytest.raises(UsageError, match="named twice"):
        find_files([tmp_path, tmp_path / "a.jsonl"])


def saved_dataset(directory: Path, *shards: str, state: object = None) -> None:
    touch(directory, *shards, "dataset_info.json")
    if state is not None:
        (directory / "state.json").write_text(json.dumps(state), encoding="utf-8")


def test_a_saved_dataset_is_read_in_the_order_of_its_state(tmp_path: Path) -> None:
    state = {"_data_files": [{"filename": "two.arrow"}, {"filename": "one.arrow"}]}
    saved_dataset(tmp_path / "set", "one.arrow", "two.arrow", state=state)
    assert names(tmp_path, [tmp_path]) == ["set/two.arrow", "set/one.arrow"]


def test_a_cached_dataset_without_a_state_is_read_by_name(tmp_path: Path) -> None:
    saved_dataset(tmp_path, "b.arrow", "a.arrow", "cache-123.arrow")
    assert names(tmp_path, [tmp_path]) == ["a.arrow", "b.arrow"]


@pytest.mark.parametrize("name", ["gone.arrow", "../a.arrow"])
def test_a_saved_dataset_that_lacks_a_file(tmp_path: Path, name: str) -> None:
    saved_dataset(tmp_path / "set", "a.arrow", state={"_data_files": [{"filename": name}]})
    with pytest.raises(UsageError, match="lacks its file"):
        find_files([tmp_path / "set"])


def test_a_saved_selection_is_refused(tmp_path: Path) -> None:
    saved_dataset(tmp_path, "a.arrow", state={"_data_files": [], "_indices_data_files": [{"filename": "i.arrow"}]})
    with pytest.raises(UsageError, match="flatten_indices"):
        find_files([tmp_path])


def test_several_splits_are_refused_by_name(tmp_path: Path) -> None:
    saved_dataset(tmp_path / "train", "a.arrow")
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}', encoding="utf-8")
    with pytest.raises(UsageError, match=r"train, test.*Name those to read, such as .*/train"):
        find_files([tmp_path])
    assert names(tmp_path, [tmp_path / "train"]) == ["train/a.arrow"]


def test_a_damaged_description_is_refused(tmp_path: Path) -> None:
    saved_dataset(tmp_path, "a.arrow")
    (tmp_path / "state.json").write_bytes(b"{")
    with pytest.raises(UsageError, match="cannot be read"):
        find_files([tmp_path])


def digest(*sources: Path) -> str:
    return dataset_digest(measure(file) for file in find_files(sources))


def test_the_digest_follows_the_bytes_and_their_order_and_no_path(tmp_path: Path) -> None:
    for name, content in [("a.jsonl", b"1\n"), ("b.jsonl", b"2\n"), ("moved/a.jsonl", b"1\n"), ("c.json", b"1\n")]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    a, b, moved, as_json = (tmp_path / name for name in ("a.jsonl", "b.jsonl", "moved/a.jsonl", "c.json"))
    assert digest(a) == digest(moved)
    assert len({digest(a), digest(b), digest(a, b), digest(b, a), digest(as_json)}) == 5
    before = digest(a)
    a.write_bytes(b"3\n")
    assert digest(a) != before


@pytest.mark.parametrize("change", ["grow", "touch", "remove"])
def test_a_file_that_changes_while_it_is_planned_is_noticed(tmp_path: Path, change: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"1\n")
    measured = [measure(file) for file in find_files([path])]
    require_unchanged(measured)
    if change == "grow":
        path.write_bytes(b"1\n2\n")
    elif change == "touch":
        os.utime(path, ns=(1, measured[0].modified + 1))
    else:
        path.unlink()
    with pytest.raises(UsageError, match="changed while it was being planned"):
        require_unchanged(measured)
