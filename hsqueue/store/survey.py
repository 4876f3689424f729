"""What the volume says of a shard: the truth that the ledger is an index of."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Container, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from hsqueue.contracts.errors import DumpMalformed, RunDamaged
from hsqueue.contracts.fingerprint import RunInfo
from hsqueue.contracts.sample import GivenUp, Published
from hsqueue.store.files import link_on_the_way, reading
from hsqueue.store.layout import SHARDS_PER_DIRECTORY, RunLayout
from hsqueue.store.manifest import Manifest, read_manifest
from hsqueue.store.samplefile import read_sample_header

SURVEY_THREADS = 8
SURVEY_BATCH = 1024
"""Shards looked at ahead of who asks; a run may have hundreds of thousands."""


@dataclass(frozen=True, slots=True)
class ShardState:
    """done: published files that are whole by header and length. given_up: from a valid manifest.
    ended: a valid manifest stands and every file that it lists is there. stale: a manifest stands that does not
    hold. damaged: indices whose file is there and not whole. fence: of the manifest that stands, 0 without one.
    """

    shard: int
    done: tuple[Published, ...]
    given_up: tuple[GivenUp, ...]
    ended: bool
    stale: bool
    damaged: tuple[int, ...]
    fence: int = 0


def look_afresh(layout: RunLayout, shards: Iterable[int]) -> None:
    """Has this node forget that directories and manifests of the run were not there. shards: one of each directory.

    A client of a network file system remembers for a while which names were absent, and other nodes have made them
    since. To list a directory asks the server. Raises VolumeUnusable.
    """
    groups = [d for shard in shards for d in (layout.shard_directory(shard).parent, layout.manifest(shard).parent)]
    for directory in (layout.root, layout.samples, layout.manifests, *groups):
        absent = contextlib.suppress(FileNotFoundError, NotADirectoryError)
        with reading(directory), absent, os.scandir(directory) as entries:
            list(entries)


def survey_shard(layout: RunLayout, info: RunInfo, shard: int) -> ShardState:
    """Reads a shard's manifest and listing; reads headers only of files that no manifest vouches for.

    Raises VolumeUnusable where the volume cannot be read.
    """
    indices = info.shard_range(shard)
    with reading(layout.root):
        directory = layout.shard_directory(shard)
        sizes = _sizes(directory) if link_on_the_way(layout.root, directory) is None else {}
        manifest = _valid_manifest(layout, info, shard)
        listed = {d.index: d for d in manifest.done} if manifest else {}
        done, damaged = [], []
        for index in indices:
            name = layout.sample(shard, index).name
            if name not in sizes:
                continue
            size, known = sizes[name], listed.get(index)
            if known is not None and known.bytes == size:
                done.append(known)
                continue
            published = _published(layout.sample(shard, index), info.run, index) if size is not None else None
            if published is None:
                damaged.append(index)
            else:
                done.append(published)
        there = {d.index for d in done}
        # A file that a frozen worker published after its sample was given up is a file all the same.
        given_up = tuple(g for g in manifest.given_up if g.index not in there) if manifest else ()
        ended = manifest is not None and len(there) + len(given_up) == len(indices)
        stale = not ended and layout.manifest(shard).exists()
    fence = manifest.fence if manifest else 0
    return ShardState(shard, tuple(done), given_up, ended, stale, tuple(damaged), fence)


def survey(layout: RunLayout, info: RunInfo, trusted: Container[int] = ()) -> Iterator[ShardState]:
    """Every shard of the run, in order, without those of `trusted` that are as their manifest left them."""

    def look(shard: int) -> ShardState | None:
        if shard in trusted and is_untouched(layout, shard):
            return None
        return survey_shard(layout, info, shard)

    look_afresh(layout, range(0, info.shards, SHARDS_PER_DIRECTORY))
    with ThreadPoolExecutor(SURVEY_THREADS) as pool:
        for begin in range(0, info.shards, SURVEY_BATCH):
            for state in pool.map(look, range(begin, min(begin + SURVEY_BATCH, info.shards))):
                if state is not None:
                    yield state


def is_untouched(layout: RunLayout, shard: int) -> bool:
    """Whether no file came to the shard or went since its manifest was written, by the times of the volume.

    Two looks a shard, where listing it takes one a sample. A file changed in place is not seen: that is for verify.
    """
    try:
        written = layout.manifest(shard).stat(follow_symlinks=False)
        return layout.shard_directory(shard).stat(follow_symlinks=False).st_mtime_ns < written.st_mtime_ns
    except OSError:
        return False


def _sizes(directory: Path) -> dict[str, int | None]:
    """Names and sizes in `directory`; None for what is no file: a link there may lead anywhere."""
    sizes = {}
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                # One that goes meanwhile, such as another worker's temporary file, says nothing of the others.
                with contextlib.suppress(FileNotFoundError):
                    sizes[entry.name] = _size(entry)
    except FileNotFoundError:
        return {}
    return sizes


def _size(entry: os.DirEntry[str]) -> int | None:
    return entry.stat(follow_symlinks=False).st_size if entry.is_file(follow_symlinks=False) else None


def _valid_manifest(layout: RunLayout, info: RunInfo, shard: int) -> Manifest | None:
    try:
        manifest = read_manifest(layout.manifest(shard))
    except RunDamaged:
        return None
    if manifest is None or manifest.problem(info.run, shard, info.shard_range(shard)):
        return None
    return manifest


def _published(path: Path, run: str, index: int) -> Published | None:
    try:
        header = read_sample_header(path)
    except (DumpMalformed, FileNotFoundError):
        return None
    return header.published if (header.run, header.index) == (run, index) else None
