"""The worker's main process: pauses consuming while its engine or the volume is away, and keeps its dumps swept."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from hsqueue.contracts.errors import HsqueueError
from hsqueue.planning.target import read_card
from hsqueue.store.layout import RunLayout
from hsworker.heartbeat import Heartbeat
from hsworker.life import Action, Life, Pause, Seen, State
from hsworker.pause import read_pause
from hsworker.pinning import check_engine
from hsworker.station import Station

log = logging.getLogger(__name__)

SWEEP_SECONDS = 60.0
WATCH_SECONDS = 0.5


class Watch(threading.Thread):
    """consumer: Celery's, of this process. queue: what it consumes."""

    def __init__(self, station: Station, consumer: Any, queue: str) -> None:
        super().__init__(name="watch", daemon=True)
        self.station, self.consumer, self.queue = station, consumer, queue
        self.stopping = threading.Event()
        self.life = Life()
        self.heartbeat = Heartbeat(station, queue, lambda: self.life)

    def run(self) -> None:
        next_sweep = 0.0
        while not self.stopping.wait(WATCH_SECONDS):
            now = time.monotonic()
            try:
                self._look()
                self._steer()
                if now >= next_sweep:
                    self.station.sweep()
                    next_sweep = now + SWEEP_SECONDS
            except HsqueueError as error:
                log.warning("%s", error)
            except Exception:
                # Ending here would leave the worker paused or silent for good.
                log.exception("unexpected error in the worker's watch; it goes on")

    def stop(self) -> None:
        self.stopping.set()

    def _look(self) -> None:
        """One step of the worker's life."""
        before = self.life
        self.life, actions = before.next(self._see())
        for action in actions:
            self._do(action)
        if self.life.state is not before.state:
            if self.life.state is State.PAUSED:
                log.warning("paused: %s", self.life.reason)
            elif self.life.state is State.SERVING and before.pause is not None:
                log.warning("resumed: the %s is back", before.pause.kind)

    def _see(self) -> Seen:
        pin = self.station.pin
        pause = read_pause(pin.pause_path)
        if pause is None and pin.pause_path.exists():
            log.warning("%s is damaged and counts for nothing", pin.pause_path)
            pin.pause_path.unlink(missing_ok=True)
        recovered = self.life.state is State.PAUSED and pause is not None and self._recovered(pause)
        return Seen(pause, recovered, pin.stop_path.exists())

    def _do(self, action: Action) -> None:
        if action is Action.CLEAR_PAUSE:
            self.station.pin.pause_path.unlink(missing_ok=True)
        elif action is Action.TELL:
            self.heartbeat.tell()

    def _steer(self) -> None:
        """Has the consumer take messages while the worker serves, and none while it is paused.

        Not by Celery's broadcasts, which are lost while the connection to Redis is; and looked at every time, since
        what is asked of a consumer that is just reconnecting may come to nothing.
        """
        tasks = self.consumer.task_consumer
        if tasks is None or self.life.state is State.STOPPING:
            return
        if bool(tasks.consuming_from(self.queue)) != self.life.consumes:
            change = self.consumer.add_task_queue if self.life.consumes else self.consumer.cancel_task_queue
            self.consumer.call_soon(change, self.queue)

    def _recovered(self, pause: Pause) -> bool:
        if pause.kind == "volume":
            return _is_writable(RunLayout(Path(pause.run_dir))) if pause.run_dir else True
        if not self.station.engine.alive():
            return False
        try:
            card = read_card(self.station.pin.dump_dir)
            check_engine(self.station.engine, card)
        except HsqueueError as error:
            log.debug("not resumed yet: %s", error)
            return False
        return not self.station.card.target.differences(card.target)


def _is_writable(layout: RunLayout) -> bool:
    """By writing where samples go: access bits say nothing about a full or read-only volume."""
    try:
        if not layout.run_json.exists():
            return False
        directory = layout.samples if layout.samples.is_dir() else layout.root
    except OSError:
        return False
    path = directory / f".hsqueue-{uuid.uuid4().hex[:8]}.tmp"
    try:
        with path.open("xb") as file:
            file.write(bytes(1 << 20))
            os.fsync(file.fileno())
    except OSError:
        return False
    finally:
        try:
            path.unlink(missing_ok=True)
        except OSError:
            log.debug("%s could not be removed", path)
    return True
