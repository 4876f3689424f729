"""Runs the engines and workers of a local run, and starts again whatever dies."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from hsqueue.contracts.fingerprint import RunInfo
from hsqueue.ledger.connect import connect
from hsqueue.ledger.ledger import Ledger
from hsqueue.local.engines import EnginePlace
from hsqueue.local.processes import Child
from hsqueue.local.redis import EmbeddedRedis
from hsqueue.queue.app import make_app
from hsqueue.queue.producer import enqueue
from hsqueue.queue.reaper import Reaper
from hsqueue.settings import Settings
from hsqueue.store.layout import RunLayout

WORKER_PATIENCE = 15.0
INTERRUPTED_PATIENCE = 2.0
ENGINE_PATIENCE = 5.0


class Supervisor:
    """As a context manager: starts engines, workers and a reaper, and sends what is not done; ends them all.

    Must be entered and left by the main thread, with whose end the kernel ends the processes.
    """

    def __init__(
        self,
        layout: RunLayout,
        info: RunInfo,
        places: list[EnginePlace],
        settings: Settings,
        dump_layout: str,
        url: str,
        embedded: EmbeddedRedis | None,
    ) -> None:
        self.layout, self.info, self.url, self.embedded = layout, info, url, embedded
        self.settings = settings
        self.engines = [
            Child(place.name, place.command, layout.logs / f"{place.name}.log") for place in places if place.command
        ]
        self.workers = [self._worker(k, place, dump_layout) for k, place in enumerate(places)]
        self._own_dumps = [place.dump_dir for place in places if place.command]

    def _worker(self, k: int, place: EnginePlace, dump_layout: str) -> Child:
        command = (
            sys.executable, "-m", "hsqueue", "worker", "--engine", place.url, "--dump-dir", str(place.dump_dir),
            "--name", f"gpu{k}", "--dump-layout", dump_layout,
        )  # fmt: skip
        return Child(f"worker gpu{k}", command, self.layout.logs / f"gpu{k}.log", {"HSQ_REDIS_URL": self.url})

    def __enter__(self) -> Supervisor:
        for directory in self._own_dumps:
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True, mode=0o700)
        try:
            for child in (*self.engines, *self.workers):
                child.start()
            app, client = make_app(self.url), connect(self.url)
            enqueue(app, Ledger(client, self.url, self.info.run), self.info)
            self.reaper = Reaper(app, client, self.url, self.settings.requeue_grace, volumes=self.settings.volumes)
            self.reaper.remember(self.info, self.layout)
            self.reaper.start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.reaper.stop()
        # What an interrupted worker has in flight is asked for again; what is published is safe at any moment.
        self._end(WORKER_PATIENCE if kind is None else INTERRUPTED_PATIENCE)

    def tick(self) -> list[str]:
        """Starts again whatever died. Returns what happened, for people. Raises ProcessKeepsDying."""
        events = [event for child in (*self.engines, *self.workers) if (event := child.restart_if_dead())]
        if self.embedded is not None and self.embedded.ensure():
            events.append("redis died; started again on its data")
        return events

    def _end(self, patience: float = INTERRUPTED_PATIENCE) -> None:
        for child in self.workers:
            child.signal_end()
        for child in self.workers:
            child.stop(patience)
        for child in self.engines:
            child.stop(ENGINE_PATIENCE)
        for directory in self._own_dumps:
            shutil.rmtree(directory, ignore_errors=True)
            _remove_if_empty(directory.parent)


def _remove_if_empty(directory: Path) -> None:
    try:
        directory.rmdir()
    except OSError:
        return
