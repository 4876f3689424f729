"""How a plan becomes a run, once, whoever else is planning the same directory.

A planner writes everything into a directory of its own, ``RUN/plan-<run id>.tmp``, its ``run.json``
included. Renaming that directory to ``RUN/plan`` is the one step that decides: it fails where another plan
stands already. Whoever sees a decided plan then links ``RUN/plan/run.json`` to ``RUN/run.json``, which is
the same file whoever does it. So the two always belong together, a planner that dies between the two steps
leaves something that the next one completes, and a planner that loses discards its own and takes the
winner's.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hsqueue.contracts.errors import RunDamaged, RunNotFound
from hsqueue.contracts.fingerprint import RunInfo
from hsqueue.store.files import fsync_directory, reading
from hsqueue.store.layout import TEMPORARY_SUFFIX, RunLayout

RUN_FILE = "run.json"
_STAGING = f"plan-*{TEMPORARY_SUFFIX}"


def load_run(root: Path) -> RunInfo:
    """What ``root/run.json`` says.

    Raises RunNotFound where there is none, RunDamaged where it cannot be understood or its plan is gone,
    VolumeUnusable.
    """
    layout = RunLayout(root)
    with reading(layout.run_json):
        try:
            text = layout.run_json.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise RunNotFound(
                f"{root} holds no run (no {RUN_FILE})", do=f"Make one with hsqueue plan PROMPTS --out {root}."
            ) from None
        has_plan = layout.plan.is_dir()
    info = RunInfo.from_json(text, layout.run_json)
    if not has_plan:
        raise RunDamaged(
            f"{layout.plan} is missing", do="Restore it from a backup, or plan again into another directory."
        )
    return info


def new_run_id() -> str:
    return secrets.token_hex(5)


@contextmanager
def staging_directory(root: Path, run: str) -> Iterator[Path]:
    """A directory to write the plan of `run` in, gone afterwards unless it was published."""
    root.mkdir(parents=True, exist_ok=True)
    fsync_directory(root.parent)
    staging = root / f"plan-{run}{TEMPORARY_SUFFIX}"
    staging.mkdir()
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def publish(staging: Path, root: Path) -> RunInfo:
    """Makes `staging`, which holds RUN_FILE, the plan of `root`, and returns the run that then stands there.

    That is another planner's where one was first; `staging` is then left as it is. Raises OSError.
    """
    for directory, _, _ in os.walk(staging):
        fsync_directory(Path(directory))
    try:
        # The name may be taken, by another planner's plan, or by this one where a network file system has sent
        # the request twice; settle() tells.
        staging.rename(RunLayout(root).plan)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOENT):
            raise
    info = settle(root)
    if info is None:
        raise FileNotFoundError(errno.ENOENT, "the plan vanished while it was being published", str(staging))
    return info


def settle(root: Path) -> RunInfo | None:
    """The run in `root`, its publication completed where it was cut short; None where no plan was decided on.

    Raises RunDamaged where ``root/plan`` is no plan that a planner has left, OSError.
    """
    layout = RunLayout(root)
    if not layout.run_json.exists():
        if not _has_entries(layout.plan):
            return None
        fsync_directory(root)
        try:
            os.link(layout.plan / RUN_FILE, layout.run_json)
        except FileExistsError:
            pass
        except FileNotFoundError:
            raise RunDamaged(
                f"{layout.plan} exists without a {RUN_FILE}", do=f"Remove {layout.plan}, or use another --out."
            ) from None
        fsync_directory(root)
    return load_run(root)


def is_staging(path: Path) -> bool:
    """Whether `path` is a plan that is being made, or was."""
    return path.match(_STAGING)


def remove_leftovers(root: Path) -> None:
    """Removes what planners left that died or lost. To be called once a plan is decided on, and only then.

    One that still runs has lost by then: it finds its directory gone and takes the winner's plan.
    """
    for staging in root.glob(_STAGING):
        shutil.rmtree(staging, ignore_errors=True)
    with suppress(OSError):
        rejected_of_failed_plan(root).unlink(missing_ok=True)


def rejected_of_failed_plan(root: Path) -> Path:
    """Where the rejected lines of a plan without a sample are kept."""
    return root / RunLayout(root).rejected.name


def write_durably(path: Path, text: str) -> None:
    """Writes the new file `path` and forces it to disk. Raises OSError."""
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _has_entries(directory: Path) -> bool:
    try:
        with os.scandir(directory) as entries:
            return any(True for _ in entries)
    except (FileNotFoundError, NotADirectoryError):
        return False
