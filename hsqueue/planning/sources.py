"""Which files the prompts are in, in which order, and the digest that says that they are still the same."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import xxhash

from hsqueue.contracts.errors import UsageError
from hsqueue.store.layout import TEMPORARY_SUFFIX

BLOCK_BYTES = 1 << 20


class Kind(StrEnum):
    JSONL = "jsonl"
    """A record a line."""
    JSON = "json"
    """A record a line, or one array of records."""
    PARQUET = "parquet"
    ARROW = "arrow"
    """Arrow's IPC stream, as ``datasets.Dataset.save_to_disk`` writes it."""


SUFFIXES = {
    ".jsonl": Kind.JSONL,
    ".jsonl.gz": Kind.JSONL,
    ".json": Kind.JSON,
    ".json.gz": Kind.JSON,
    ".parquet": Kind.PARQUET,
}
DATASET_FILES = frozenset({"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json"})
"""Files that describe a Hugging Face data set and hold no record."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    path: Path
    kind: Kind

    @property
    def name(self) -> str:
        """As rejected lines and the plan name the file: the path as the user gave it."""
        return str(self.path)


@dataclass(frozen=True, slots=True)
class SourceDigest:
    """A file's bytes at one moment. size: bytes. modified: nanoseconds. digest: XXH3-128 of the bytes."""

    file: SourceFile
    size: int
    modified: int
    digest: str


def find_files(sources: Sequence[Path]) -> tuple[SourceFile, ...]:
    """The files that `sources` name: files as given, directories searched, sorted by path.

    A directory that ``datasets.Dataset.save_to_disk`` wrote is read as that data set. Raises UsageError where
    a source does not exist, is of no known type, or holds no file of one.
    """
    try:
        files = tuple(file for source in sources for file in _files_of(source))
    except OSError as error:
        raise UsageError(
            f"{error.filename} cannot be searched ({error.strerror})", do="Check its permissions."
        ) from None
    seen: set[Path] = set()
    for file in files:
        resolved = file.path.resolve()
        if resolved in seen:
            raise UsageError(f"{file.name} is named twice", do="Name each file once.")
        seen.add(resolved)
    return files


def measure(file: SourceFile) -> SourceDigest:
    """Reads the whole file. Raises UsageError where it cannot be read."""
    digest = xxhash.xxh3_128()
    try:
        with file.path.open("rb") as stream:
            before = file.path.stat()
            while block := stream.read(BLOCK_BYTES):
                digest.update(block)
    except OSError as error:
        raise UsageError(f"{file.name} cannot be read ({error.strerror})", do="Check the file.") from None
    return SourceDigest(file, before.st_size, before.st_mtime_ns, digest.hexdigest())


def dataset_digest(measured: Iterable[SourceDigest]) -> str:
    """One digest of all files' kinds and bytes in order; where they lie and what they are called is left out."""
    whole = xxhash.xxh3_128()
    for one in measured:
        whole.update(f"{one.file.kind}:{one.size}:{one.digest};".encode())
    return whole.hexdigest()


def require_unchanged(measured: Iterable[SourceDigest]) -> None:
    """Raises UsageError where a file was written to since it was measured."""
    for one in measured:
        try:
            now = one.file.path.stat()
        except OSError:
            now = None
        if now is None or (now.st_size, now.st_mtime_ns) != (one.size, one.modified):
            raise UsageError(
                f"{one.file.name} changed while it was being planned", do="Plan again once it is written for good."
            )


def _files_of(source: Path) -> Iterator[SourceFile]:
    if source.is_dir():
        found = list(_files_under(source))
        if not found:
            raise UsageError(f"{source} holds no {_known_types()} file", do="Name the files, or convert them.")
        yield from found
    elif source.is_file():
        kind = _kind(source)
        if kind is None:
            raise UsageError(f"{source} is of no known type", expected=_known_types(), found=source.suffix or "none")
        yield SourceFile(source, kind)
    else:
        raise UsageError(f"{source} does not exist", do="Check the path of the prompts.")


def _files_under(directory: Path) -> Iterator[SourceFile]:
    if (directory / "dataset_dict.json").exists():
        _refuse_splits(directory)
    if _is_saved_dataset(directory):
        yield from _arrow_files(directory)
        return
    for path in sorted(directory.iterdir()):
        if path.name.startswith((".", "_")) or path.name.endswith(TEMPORARY_SUFFIX) or path.name in DATASET_FILES:
            continue
        if path.is_dir():
            yield from _files_under(path)
        elif (kind := _kind(path)) is not None:
            yield SourceFile(path, kind)


def _kind(path: Path) -> Kind | None:
    name = path.name.lower()
    return next((kind for suffix, kind in SUFFIXES.items() if name.endswith(suffix)), None)


def _known_types() -> str:
    return ", ".join(SUFFIXES)


def _refuse_splits(directory: Path) -> None:
    """A data set of several splits: which of them to train on is not for us to guess."""
    splits = _read_json(directory / "dataset_dict.json").get("splits")
    names = splits if isinstance(splits, list) else []
    raise UsageError(
        f"{directory} holds several splits ({', '.join(map(str, names))})",
        do=f"Name those to read, such as {directory / str(names[0]) if names else directory / 'train'}.",
    )


def _is_saved_dataset(directory: Path) -> bool:
    described = (directory / "state.json").exists() or (directory / "dataset_info.json").exists()
    return described and any(directory.glob("*.arrow"))


def _arrow_files(directory: Path) -> Iterator[SourceFile]:
    state = _read_json(directory / "state.json") if (directory / "state.json").exists() else {}
    if state.get("_indices_data_files"):
        raise UsageError(
            f"{directory} is a selection of rows that was saved without being applied",
            do="Save it again with Dataset.flatten_indices().save_to_disk(...).",
        )
    listed = state.get("_data_files")
    if isinstance(listed, list):
        names = [str(entry.get("filename")) for entry in listed if isinstance(entry, dict)]
    else:
        names = sorted(path.name for path in directory.glob("*.arrow") if not path.name.startswith("cache-"))
    for name in names:
        path = directory / name
        if path.parent != directory or not path.is_file():
            raise UsageError(f"{directory} lacks its file {name}", do="Save the data set again.")
        yield SourceFile(path, Kind.ARROW)


def _read_json(path: Path) -> dict[str, object]:
    try:
        table = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read ({error})", do="Save the data set again.") from None
    return table if isinstance(table, dict) else {}
