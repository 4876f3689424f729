"""Whether a run's files are what the run says: every sample accounted for, every byte as published."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import xxhash

from hsqueue.contracts.dump import INPUT_IDS, expected_tensors
from hsqueue.contracts.errors import DumpMalformed, RunDamaged
from hsqueue.contracts.fingerprint import RunInfo
from hsqueue.contracts.rid import parse_rid
from hsqueue.contracts.sample import Published, Sample
from hsqueue.planning.shards import read_shard
from hsqueue.store.files import link_on_the_way, reading
from hsqueue.store.layout import SHARDS_PER_DIRECTORY, TEMPORARY_SUFFIX, RunLayout
from hsqueue.store.manifest import Manifest, read_manifest
from hsqueue.store.publish import CHUNK_BYTES
from hsqueue.store.samplefile import LOSS_MASK, SampleHeader, read_sample_header
from hsqueue.store.survey import look_afresh

VERIFY_THREADS = 4


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong. shard: None where it is no shard's matter. index: of the sample, None for more than one's.
    repair: ``sample`` (ask for it again), ``manifest`` (write it again), ``remove`` (what does not belong there).
    """

    shard: int | None
    index: int | None
    problem: str
    path: Path
    repair: str


@dataclass(frozen=True, slots=True)
class ShardCheck:
    """good: samples whose files are right. findings: what is wrong. ended: the shard has a right manifest."""

    shard: int
    good: int
    tokens: int
    bytes: int
    given_up: int
    findings: tuple[Finding, ...]
    ended: bool


@dataclass(frozen=True, slots=True)
class Verification:
    """The whole run's checks, added up. missing: samples without a right file or an ending. unended: shards without
    a right manifest.
    """

    good: int
    given_up: int
    missing: int
    tokens: int
    bytes: int
    findings: tuple[Finding, ...]
    unended: int

    @property
    def clean(self) -> bool:
        return not self.findings


def verify(
    layout: RunLayout, info: RunInfo, *, deep: bool, progress: Callable[[int], None] | None = None
) -> Verification:
    """Checks every sample that is published or listed. deep: also reads every byte and compares every token id.

    progress: told how many samples of each shard were looked at. Raises VolumeUnusable, RunDamaged for a plan
    that cannot be read.
    """
    look_afresh(layout, range(0, info.shards, SHARDS_PER_DIRECTORY))
    checks = []
    for check in _checks(layout, info, deep):
        checks.append(check)
        if progress is not None:
            progress(len(info.shard_range(check.shard)))
    strays = _strays(layout, info)
    good, given_up = sum(c.good for c in checks), sum(c.given_up for c in checks)
    return Verification(
        good, given_up, info.samples - good - given_up, sum(c.tokens for c in checks), sum(c.bytes for c in checks),
        (*strays, *(f for c in checks for f in c.findings)), sum(not c.ended for c in checks),
    )  # fmt: skip


def _checks(layout: RunLayout, info: RunInfo, deep: bool) -> Iterator[ShardCheck]:
    with ThreadPoolExecutor(VERIFY_THREADS) as pool:
        yield from pool.map(lambda shard: check_shard(layout, info, shard, deep=deep), range(info.shards))


def _strays(layout: RunLayout, info: RunInfo) -> list[Finding]:
    """What lies where only shards' directories and manifests belong, and is none of this run's."""
    wanted = {layout.shard_directory(shard) for shard in range(info.shards)}
    wanted |= {layout.manifest(shard) for shard in range(info.shards)}
    groups = {path.parent for path in wanted}
    findings = []
    for top in (layout.samples, layout.manifests):
        for group in _entries(layout, top):
            for path in _entries(layout, group) if group in groups else [group]:
                if path not in wanted and not path.name.endswith(TEMPORARY_SUFFIX):
                    findings.append(Finding(None, None, "belongs to no shard of this run", path, "remove"))
    return findings


def _entries(layout: RunLayout, directory: Path) -> list[Path]:
    with reading(directory):
        if not directory.is_dir() or link_on_the_way(layout.root, directory):
            return []
        return sorted(directory.iterdir())


def check_shard(layout: RunLayout, info: RunInfo, shard: int, *, deep: bool) -> ShardCheck:
    """One shard's files against its plan and its manifest."""
    samples = {s.index: s for s in read_shard(layout.plan_shard(shard), info.shard_range(shard))}
    findings: list[Finding] = []
    manifest = _manifest(layout, info, shard, findings)
    listed = {d.index: d for d in manifest.done} if manifest else {}
    given_up = {g.index for g in manifest.given_up} if manifest else set()
    with reading(layout.root):
        there = _listing(layout, shard, samples, findings)
        good = tokens = size = 0
        for index, sample in samples.items():
            path = layout.sample(shard, index)
            problem, header = None, None
            if there.get(index) is False:
                problem = "something that is no file stands in its place"
            elif index in there:
                problem, header = _check_file(path, info, sample, listed.get(index), deep)
            elif index in listed:
                problem = "the manifest lists it as done, and its file is missing"
            if problem:
                findings.append(Finding(shard, index, problem, path, "sample"))
            elif header is not None:
                good, tokens, size = good + 1, tokens + header.tokens, size + header.file.file_bytes
                if index in given_up:
                    text = "the manifest lists it as given up, and a whole file stands there"
                    findings.append(Finding(shard, index, text, path, "manifest"))
                elif index in listed and listed[index] != header.published:
                    text = "the manifest lists another length for it"
                    findings.append(Finding(shard, index, text, path, "manifest"))
    return ShardCheck(shard, good, tokens, size, len(given_up - set(there)), tuple(findings), manifest is not None)


def _manifest(layout: RunLayout, info: RunInfo, shard: int, findings: list[Finding]) -> Manifest | None:
    path = layout.manifest(shard)
    try:
        manifest = read_manifest(path)
    except RunDamaged as error:
        findings.append(Finding(shard, None, error.problem, path, "manifest"))
        return None
    if manifest is None:
        return None
    problem = manifest.problem(info.run, shard, info.shard_range(shard))
    if problem:
        findings.append(Finding(shard, None, f"the manifest {problem}", path, "manifest"))
        return None
    return manifest


def _listing(layout: RunLayout, shard: int, samples: dict[int, Sample], findings: list[Finding]) -> dict[int, bool]:
    """Indices whose names are taken, and whether by a file, for a link may lead anywhere. Whatever else lies there
    is a finding, but for work in progress.
    """
    directory = layout.shard_directory(shard)
    names = {layout.sample(shard, index).name: index for index in samples}
    found = {}
    link = link_on_the_way(layout.root, directory)
    if link is not None:
        findings.append(Finding(shard, None, "a link, and what lies behind it is not the run's", link, "remove"))
    for path in sorted(directory.iterdir()) if directory.is_dir() and link is None else ():
        if path.name in names:
            found[names[path.name]] = path.is_file() and not path.is_symlink()
        elif not path.name.endswith(TEMPORARY_SUFFIX):
            findings.append(Finding(shard, None, "a file that belongs to no sample of this shard", path, "remove"))
    return found


def _check_file(
    path: Path, info: RunInfo, sample: Sample, listed: Published | None, deep: bool
) -> tuple[str | None, SampleHeader | None]:
    try:
        header = read_sample_header(path)
    except DumpMalformed as error:
        return str(error), None
    except FileNotFoundError:
        return "the file went away while it was checked", None
    problem = _check_header(header, info, sample, listed.digest if listed else None)
    if problem is None and deep:
        problem = _check_payload(path, header, sample)
    return problem, header


def _check_header(header: SampleHeader, info: RunInfo, sample: Sample, digest: str | None) -> str | None:
    target = info.fingerprint.target
    if (header.run, header.index) != (info.run, sample.index):
        return f"holds sample {header.index} of run {header.run}"
    if header.tokens != sample.tokens:
        return f"holds {header.tokens} tokens where the plan has {sample.tokens}"
    for name, wanted in (
        ("id", sample.id), ("layers", ",".join(map(str, target.layers))), ("norm", target.norm),
        ("dtype", target.dtype),
    ):  # fmt: skip
        if header.file.metadata.get(name) != wanted:
            return f"says {name} {header.file.metadata.get(name)!r:.60} where the run has {wanted!r:.60}"
    rid = parse_rid(header.file.metadata.get("rid", ""))
    if rid is None or (rid.run, rid.index) != (info.run, sample.index):
        return f"was made by request {header.file.metadata.get('rid')!r:.80}, which was for no such sample"
    if digest is not None and header.digest != digest:
        return f"its digest is {header.digest}, the manifest has {digest}"
    expected = expected_tensors(sample.tokens, len(target.layers), target.hidden_size, target.norm, target.dtype)
    tensors = {name: (dtype, shape) for name, dtype, shape in expected} | {LOSS_MASK: ("U8", (sample.tokens,))}
    if tensors != {name: (t.dtype, t.shape) for name, t in header.file.tensors.items()}:
        return "holds other tensors than the run's"
    return None


def _check_payload(path: Path, header: SampleHeader, sample: Sample) -> str | None:
    digest = xxhash.xxh3_128()
    ids, mask = header.file.tensors[INPUT_IDS], header.file.tensors[LOSS_MASK]
    with path.open("rb") as file:
        file.seek(header.file.size + ids.begin)
        if file.read(ids.end - ids.begin) != sample.input_ids.tobytes():
            return "its token ids are not the plan's"
        file.seek(header.file.size + mask.begin)
        if file.read(mask.end - mask.begin) != sample.loss_mask:
            return "its loss mask is not the plan's"
        file.seek(header.file.size)
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    if digest.hexdigest() != header.checksum:
        return f"its bytes have changed: checksum {digest.hexdigest()}, published with {header.checksum}"
    return None
