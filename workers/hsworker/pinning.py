"""What a worker is pinned to: one engine, one dump directory, and the proof that they belong together."""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import re
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from hsqueue.contracts.card import EngineCard
from hsqueue.contracts.errors import (
    DumpDirectoryNotShared,
    DumpMissing,
    EngineDown,
    EngineRefused,
    EngineUnfit,
    HsqueueError,
    RequestAborted,
    UsageError,
    WorkerAlreadyPinned,
)
from hsqueue.contracts.rid import RequestId
from hsqueue.contracts.sample import Sample
from hsqueue.planning.target import read_card
from hsworker.dumps import RidDumps, require_private
from hsworker.engine import EngineClient
from hsworker.matching import check_dump, check_response

WORKSPACE = ".hsqueue"
PROBE_RUN = "probe"
PROBE_TOKENS = (3, 5, 7, 11, 13)
PROBES = 3
PROBE_PAUSE = 1.0
"""Seconds; an engine that has just loaded its weights may end what it was asked before."""
WORKER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True)
class Pin:
    """engine_url, dump_dir: of one engine. name: of the worker, unique on its node. layout: of the dumps, ``rid``
    or ``counter``.
    """

    engine_url: str
    dump_dir: Path
    name: str
    layout: str = "rid"

    def __post_init__(self) -> None:
        if not WORKER_NAME.fullmatch(self.name):
            raise UsageError(f"worker name {self.name!r} is not usable", do="Use letters, digits, '-', '_' and '.'.")
        if self.layout not in ("rid", "counter"):
            raise UsageError(f"dump layout {self.layout!r} is not known", do="Say rid or counter.")

    @property
    def owner(self) -> str:
        """Who holds the leases of this worker: the same after a restart, so that it can drop its own old ones."""
        return f"{self.worker}:{self.dump_dir}".replace(" ", "_")

    @property
    def worker(self) -> str:
        """The worker's name among all workers, Celery's as well."""
        return f"{self.name}@{socket.gethostname()}"

    @property
    def workspace(self) -> Path:
        return self.dump_dir / WORKSPACE

    @property
    def budget_path(self) -> Path:
        return self.workspace / "budget"

    @property
    def gauges_path(self) -> Path:
        return self.workspace / "gauges"

    @property
    def pause_path(self) -> Path:
        return self.workspace / "paused"

    @property
    def stop_path(self) -> Path:
        return self.workspace / "stopping"

    def to_environment(self) -> dict[str, str]:
        """For the processes of the worker."""
        return {
            "HSQ_ENGINE_URL": self.engine_url,
            "HSQ_DUMP_DIR": str(self.dump_dir),
            "HSQ_WORKER_NAME": self.name,
            "HSQ_DUMP_LAYOUT": self.layout,
        }

    @classmethod
    def from_environment(cls) -> Pin:
        """Raises UsageError where the process was not started by ``hsqueue worker``."""
        env = os.environ
        try:
            return cls(
                env["HSQ_ENGINE_URL"], Path(env["HSQ_DUMP_DIR"]), env["HSQ_WORKER_NAME"],
                env.get("HSQ_DUMP_LAYOUT", "rid"),
            )  # fmt: skip
        except KeyError as error:
            raise UsageError(f"{error} is not set", do="Start workers with hsqueue worker --engine URL.") from None


def lock_dump_directory(pin: Pin, wait: Callable[[], None] | None = None) -> IO[bytes]:
    """Makes this the only worker of the directory for as long as the returned file, or a child's copy, is open.

    wait: called, and then waited for as long as it takes, where another worker has the directory; None: refused.
    Raises WorkerAlreadyPinned, DumpDirectoryNotShared where the directory cannot be written.
    """
    require_private(pin.dump_dir)
    try:
        pin.workspace.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = (pin.workspace / "lock").open("a+b")
    except OSError as error:
        raise DumpDirectoryNotShared(
            f"{pin.dump_dir} cannot be used ({error.strerror})",
            do="Give --dump-dir the engine's HSQ_DUMP_DIR, writable for the worker, which removes dumps.",
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if wait is None:
            lock.close()
            raise WorkerAlreadyPinned(
                f"another worker reads {pin.dump_dir}",
                do="One worker an engine: stop the other, give each its own, or start this one with --standby.",
            ) from None
        wait()
        fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def wait_for_engine(client: EngineClient, patience: float, say: Callable[[str], None]) -> None:
    """Waits until the engine answers. patience: seconds. say: told now and then. Raises EngineDown."""
    deadline = time.monotonic() + patience
    next_word = 0.0
    while not client.alive():
        now = time.monotonic()
        if now >= deadline:
            raise EngineDown(
                f"no engine answers at {client.url} after {patience:.0f} s",
                do="Start it, or correct --engine; for models that load slowly raise --wait.",
            )
        if now >= next_word:
            say(f"waiting for the engine at {client.url}")
            next_word = now + 30
        time.sleep(0.3)


@dataclass(frozen=True, slots=True)
class Told:
    """What an engine says of its capture. instance: None where it has no plugin. problem: why it is off, or empty."""

    instance: str | None
    problem: str

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> Told:
        """info: SGLang's ``/server_info``. A data parallel server tells it for each rank, in its internal states."""
        states = info.get("internal_states")
        tables = [info, *(state for state in (states if isinstance(states, list) else []) if isinstance(state, dict))]
        told = [table for table in tables if isinstance(table.get("hsq_instance"), str)]
        problems = [str(table["hsq_problem"]) for table in told if table.get("hsq_problem")]
        return cls(told[0]["hsq_instance"] if told else None, problems[0] if problems else "")


def require_card(client: EngineClient, dump_dir: Path) -> EngineCard:
    """The card in `dump_dir`, of an engine that captures. Where there is none the engine itself may know why.

    Raises EngineUnfit where capture is off, DumpDirectoryNotShared where there is no card for another reason.
    """
    try:
        card = read_card(dump_dir)
    except HsqueueError:
        problem = ""
        with contextlib.suppress(EngineDown):
            problem = Told.of(client.server_info()).problem
        if problem:
            raise _unfit(client, problem) from None
        raise
    if card.problem:
        raise _unfit(client, card.problem)
    return card


def _unfit(client: EngineClient, problem: str) -> EngineUnfit:
    return EngineUnfit(f"the engine at {client.url} does not capture: {problem}", do="See the engine's log.")


def check_engine(client: EngineClient, card: EngineCard) -> None:
    """Raises EngineUnfit where capture is off, DumpDirectoryNotShared where the card is of another process."""
    info = client.server_info()
    told = Told.of(info)
    if told.problem or card.problem:
        raise _unfit(client, told.problem or card.problem)
    if told.instance is not None and told.instance != card.instance:
        raise DumpDirectoryNotShared(
            f"the dump directory belongs to another engine than {client.url}",
            expected=f"the card of instance {told.instance}",
            found=f"{card.server} on port {card.port}, instance {card.instance}",
            do="Give --dump-dir the HSQ_DUMP_DIR of that engine.",
        )
    port = info.get("port")
    if isinstance(port, int) and port != card.port:
        raise DumpDirectoryNotShared(
            f"the dump directory belongs to another engine than {client.url}",
            expected=f"port {port}", found=f"port {card.port}",
            do="Give --dump-dir the HSQ_DUMP_DIR of that engine.",
        )  # fmt: skip


def probe(client: EngineClient, dump_dir: Path, card: EngineCard, timeout: float = 30.0) -> None:
    """Sends one short prompt and takes its dump: engine, plugin and directory work together, or it raises.

    One that the engine refuses or ends is sent again, as a sample is: bad luck once keeps no worker from starting.
    Raises DumpDirectoryNotShared where the dump does not appear, DumpMissing where the engine says why, or the named
    error of whatever else is wrong.
    """
    for left in reversed(range(PROBES)):
        try:
            _probe_once(client, dump_dir, card, timeout)
            return
        except (EngineRefused, RequestAborted):
            if not left:
                raise
            time.sleep(PROBE_PAUSE)


def _probe_once(client: EngineClient, dump_dir: Path, card: EngineCard, timeout: float) -> None:
    ids = [t % card.vocab_size for t in PROBE_TOKENS]
    sample = Sample(0, PROBE_RUN, array.array("q", ids), bytes(len(ids)))
    rid = RequestId(PROBE_RUN, 0, time.time_ns(), uuid.uuid4().int % 1_000_000)
    dumps = RidDumps(dump_dir)
    try:
        check_response(client.prefill(str(rid), ids), str(rid), len(ids))
        dump = dumps.wait(rid, sample, timeout)
        check_dump(dump.meta, dump.file, dump.ids, str(rid), sample, card.target)
    except DumpMissing as error:
        if error.found is not None:
            raise
        raise DumpDirectoryNotShared(
            f"{client.url} answered, but its dump did not appear in {dump_dir} within {timeout:.0f} s",
            do="Give --dump-dir the engine's HSQ_DUMP_DIR, and share that directory between engine and worker.",
        ) from None
    finally:
        dumps.forget(rid, orphaned=True)
