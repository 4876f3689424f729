"""Prompts to a run: the one function behind ``hsqueue plan``, and what a resumed run is held against."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hsqueue.contracts.errors import NothingToDo, RunDamaged, UsageError, VolumeUnusable
from hsqueue.contracts.fingerprint import Fingerprint, RunInfo
from hsqueue.contracts.target import Target
from hsqueue.planning.commit import (
    RUN_FILE,
    is_staging,
    load_run,
    new_run_id,
    publish,
    rejected_of_failed_plan,
    remove_leftovers,
    settle,
    staging_directory,
    write_durably,
)
from hsqueue.planning.draft import Draft
from hsqueue.planning.limits import Limits
from hsqueue.planning.pipeline import Tokenised, tokenise
from hsqueue.planning.readers import read_rows
from hsqueue.planning.rejects import Reason, Rejected, RejectLog
from hsqueue.planning.report import PlanReport, SourceReport, length_statistics
from hsqueue.planning.sources import SourceDigest, dataset_digest, find_files, measure, require_unchanged
from hsqueue.planning.tokens import NO_TEMPLATE, Tokenizer
from hsqueue.store.layout import RunLayout

__all__ = ["PlanOptions", "PlanResult", "fingerprint_of", "load_plan", "load_run", "make_plan"]

NO_TOKENIZER = "none"
PROGRESS_EVERY = 256
_PLAN, _REJECTED = RunLayout(Path()).plan_json.name, RunLayout(Path()).rejected.name
Progress = Callable[[int], None]
"""Called now and then with the number of records read so far."""


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """max_length: tokens; longer records are rejected, never cut. min_loss_tokens: supervised tokens that a
    record needs. shard_size: samples a shard. ids: ``required`` rejects records without an id, ``line``
    makes one of file and line. Raises UsageError on a value that makes no sense.
    """

    max_length: int
    min_loss_tokens: int = 0
    shard_size: int = 512
    ids: Literal["required", "line"] = "required"

    def __post_init__(self) -> None:
        for name, lowest in (("max_length", 1), ("min_loss_tokens", 0), ("shard_size", 1)):
            if getattr(self, name) < lowest:
                option = name.replace("_", "-")
                raise UsageError(f"--{option} is too small", expected=f"at least {lowest}", found=getattr(self, name))
        if self.ids not in ("required", "line"):
            raise UsageError("--ids is not understood", expected="required or line", found=self.ids)


@dataclass(frozen=True, slots=True)
class PlanResult:
    """info: the run as it stands. report: of its plan. made: whether this call planned it; else it was there."""

    info: RunInfo
    report: PlanReport
    made: bool

    @property
    def rejected(self) -> Mapping[str, int]:
        """Lines by reason."""
        return self.report.rejected


def make_plan(
    sources: Sequence[Path],
    root: Path,
    target: Target,
    tokenizer: Tokenizer | None,
    options: PlanOptions,
    progress: Progress | None = None,
) -> PlanResult:
    """Plans `sources` into the run directory `root`, or returns the run that is there already.

    tokenizer: None where every record holds input_ids. Raises FingerprintMismatch where `root` holds a run
    of something else, NothingToDo where no sample is left, UsageError for sources that cannot be read,
    VolumeUnusable where `root` cannot be written. After an error no part of a plan is left in `root`.
    """
    files = find_files(sources)
    _require_apart(sources, root)
    _require_ours(root)
    measured = [measure(file) for file in files]
    fingerprint = _fingerprint(measured, target, tokenizer, options)
    run = new_run_id()
    try:
        info = settle(root) or _plan(run, measured, root, fingerprint, tokenizer, options, progress)
    except OSError as error:
        raise VolumeUnusable(
            f"the plan cannot be written to {root} ({error})", do="Check the volume's space and permissions."
        ) from error
    info.fingerprint.require(fingerprint, root)
    remove_leftovers(root)
    return PlanResult(info, load_plan(root), info.run == run)


def fingerprint_of(
    sources: Sequence[Path], target: Target, tokenizer: Tokenizer | None, options: PlanOptions
) -> Fingerprint:
    """What a run of these inputs would be made for; reads the files' bytes and tokenises nothing.

    Hold a run against it with ``info.fingerprint.require(...)``. Raises UsageError where a source is missing.
    """
    return _fingerprint([measure(file) for file in find_files(sources)], target, tokenizer, options)


def load_plan(root: Path) -> PlanReport:
    """``root/plan/plan.json``. Raises RunDamaged where it is missing or cannot be understood."""
    path = RunLayout(root).plan_json
    try:
        text = path.read_bytes()
    except OSError as error:
        raise RunDamaged(
            f"{path} cannot be read ({error.strerror})",
            do="Restore it from a backup, or plan again into another directory.",
        ) from None
    return PlanReport.from_json(text, path)


def _plan(
    run: str,
    measured: Sequence[SourceDigest],
    root: Path,
    fingerprint: Fingerprint,
    tokenizer: Tokenizer | None,
    options: PlanOptions,
    progress: Progress | None,
) -> RunInfo:
    """The run that stands in `root` afterwards, which is `run` unless another planner was first."""
    try:
        with staging_directory(root, run) as staging:
            rows = (row for one in measured for row in read_rows(one.file))
            found = tokenise(rows, tokenizer, options.ids == "line")
            limits = Limits(options.max_length, options.min_loss_tokens, fingerprint.vocab_size)
            with RejectLog(staging / _REJECTED) as log, Draft(staging, limits, options.shard_size) as draft:
                _fill(draft, log, found, progress)
            require_unchanged(measured)
            if not draft.samples:
                raise _nothing_to_do(staging, root, log.counts)
            _write_summary(staging, run, fingerprint, draft, log.counts, measured)
            return publish(staging, root)
    except FileNotFoundError:
        # Another planner was first and took this one's directory for a leftover.
        winner = settle(root)
        if winner is None:
            raise
        return winner


def _fill(draft: Draft, log: RejectLog, found: Iterable[Tokenised | Rejected], progress: Progress | None) -> None:
    read = 0
    for read, one in enumerate(found, 1):
        if isinstance(one, Rejected):
            log.add(one)
        elif (reject := draft.add(one)) is not None:
            log.add(Rejected(one.file, one.line, one.id, reject.reason, reject.detail))
        if progress is not None and read % PROGRESS_EVERY == 0:
            progress(read)
    draft.finish()
    if progress is not None:
        progress(read)


def _write_summary(
    staging: Path,
    run: str,
    fingerprint: Fingerprint,
    draft: Draft,
    rejected: Mapping[str, int],
    measured: Sequence[SourceDigest],
) -> None:
    report = PlanReport(
        run=run,
        samples=draft.samples,
        shards=draft.shards,
        tokens=draft.tokens,
        supervised_tokens=draft.supervised_tokens,
        unsupervised=draft.unsupervised,
        rejected=dict(rejected),
        lengths=length_statistics(draft.lengths),
        sources=tuple(
            SourceReport(one.file.name, one.file.kind, one.size, one.digest, draft.by_file[one.file.name])
            for one in measured
        ),
    )
    info = RunInfo(run, time.time(), draft.samples, draft.shards, draft.tokens, fingerprint)
    write_durably(staging / _PLAN, report.to_json())
    write_durably(staging / RUN_FILE, info.to_json())


def _nothing_to_do(staging: Path, root: Path, rejected: Mapping[str, int]) -> NothingToDo:
    """The error to raise; the list of the rejected lines is kept, since it is all that says what to mend."""
    if not rejected:
        return NothingToDo("the prompts hold no record at all", do="Check the files; blank lines do not count.")
    kept = rejected_of_failed_plan(root)
    (staging / _REJECTED).replace(kept)
    reasons = ", ".join(f"{n} {reason}" for reason, n in sorted(rejected.items(), key=lambda item: -item[1]))
    hint = ", or make ids from file and line with --ids line" if Reason.MISSING_ID in rejected else ""
    return NothingToDo(
        f"no record can be used ({reasons})", do=f"Every line and its reason stand in {kept}; correct them{hint}."
    )


def _fingerprint(
    measured: Sequence[SourceDigest], target: Target, tokenizer: Tokenizer | None, options: PlanOptions
) -> Fingerprint:
    dataset = dataset_digest(measured)
    return Fingerprint(
        model=target.model,
        weights=target.weights,
        layers=target.layers,
        norm=target.norm,
        dtype=target.dtype,
        hidden_size=target.hidden_size,
        vocab_size=target.vocab_size,
        tokenizer=tokenizer.digest if tokenizer else NO_TOKENIZER,
        chat_template=tokenizer.template_digest if tokenizer else NO_TEMPLATE,
        dataset=dataset,
        max_length=options.max_length,
        min_loss_tokens=options.min_loss_tokens,
        shard_size=options.shard_size,
        ids=options.ids,
    )


def _require_ours(root: Path) -> None:
    """A run's directory holds nothing else, so that hsqueue clean cannot remove what is somebody's own."""
    if not root.exists():
        return
    if not root.is_dir():
        raise UsageError(f"--out {root} is a file", do="Name a directory.")
    ours = {RUN_FILE, "plan", rejected_of_failed_plan(root).name}
    foreign = sorted(path.name for path in root.iterdir() if path.name not in ours and not is_staging(path))
    if foreign and not (root / RUN_FILE).exists() and not (root / "plan" / RUN_FILE).exists():
        raise UsageError(f"--out {root} is not empty and holds no run ({foreign[0]})", do="Name a new directory.")


def _require_apart(sources: Sequence[Path], root: Path) -> None:
    """A run inside a directory of prompts would be read as prompts itself the next time."""
    for source in sources:
        if source.is_dir() and root.resolve().is_relative_to(source.resolve()):
            raise UsageError(f"--out {root} lies inside the prompts {source}", do="Choose a directory outside it.")
