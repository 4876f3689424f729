"""The Celery application of a pinned worker: ``celery -A hsworker worker``, as ``hsqueue worker`` starts it."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import socket
import time
from typing import Any

from celery import Task
from celery.apps import worker as celery_worker
from celery.signals import setup_logging, worker_process_init, worker_ready, worker_shutting_down

from hsqueue.contracts.errors import HsqueueError, SamplesFailed, UsageError
from hsqueue.contracts.message import TASK_NAME, ShardMessage
from hsqueue.queue.app import make_app
from hsqueue.queue.reaper import Reaper
from hsqueue.settings import load_settings
from hsworker.consumer import CarefulConsumer
from hsworker.heartbeat import Heartbeat
from hsworker.pinning import Pin
from hsworker.station import Station
from hsworker.telling import Teller
from hsworker.watch import Watch

log = logging.getLogger(__name__)

settings = load_settings()
if settings.redis_url is None:
    raise UsageError("HSQ_REDIS_URL is not set", do="Set it to the Redis of the queue; see ops/hsqueue.env.")
redis_url = settings.redis_url.get_secret_value()
app = make_app(redis_url)
app.conf.worker_consumer = CarefulConsumer

DRAIN_POLL = 0.1
_stations: dict[int, Station] = {}
_threads: list[Watch | Heartbeat | Reaper] = []


def station() -> Station:
    """This process's own; connections and maps must not be shared with the process that forked it."""
    if os.getpid() not in _stations:
        _stations[os.getpid()] = Station(Pin.from_environment(), settings, redis_url)
    return _stations[os.getpid()]


@app.task(name=TASK_NAME, bind=True, throws=(SamplesFailed,))  # type: ignore[untyped-decorator]
def extract(self: Task, **kwargs: object) -> str:
    """Works one shard; see ``Station.work``. An error raised here would be lost with the message, so none is but the
    one that says how an ended shard has ended: Flower lists its task as failed, with the reason.
    """
    try:
        here = station()
        teller = Teller(self.send_event, here.pin.engine_url)
        teller.waits()
        return here.work(ShardMessage.from_kwargs(kwargs), teller.report)
    except SamplesFailed:
        raise
    except HsqueueError as error:
        log.error("a message could not be handled: %s", error)
        return f"refused: {error}"


class DrainingWorker(app.Worker):  # type: ignore[misc, name-defined]
    """Celery's worker, whose soft shutdown ends once the shards in hand are given back, not when its time is up."""

    def start(self) -> None:
        try:
            super().start()
        finally:
            for thread in _threads:
                if isinstance(thread, Heartbeat):
                    thread.leave()

    def wait_for_soft_shutdown(self) -> None:
        here = station()
        here.pin.stop_path.touch()
        deadline = time.monotonic() + app.conf.worker_soft_shutdown_timeout
        while here.budget.slots() and time.monotonic() < deadline:
            time.sleep(DRAIN_POLL)


app.Worker = DrainingWorker


@setup_logging.connect  # type: ignore[untyped-decorator]
def _configure_logging(loglevel: int | str | None = None, **_: Any) -> None:
    from hsqueue.logs import configure, say_past_logging

    name = f"{Pin.from_environment().name}@{socket.gethostname()}"
    configure(settings.log, loglevel or logging.INFO, settings.secrets, worker=name)
    # Celery's signal handlers write plain lines to standard output.
    celery_worker.safe_say = say_past_logging


@worker_process_init.connect  # type: ignore[untyped-decorator]
def _die_with_parent(**_: Any) -> None:
    """A child without its parent would go on unseen, holding leases that nobody renews for it."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


@worker_ready.connect  # type: ignore[untyped-decorator]
def _start_threads(sender: Any = None, **_: Any) -> None:
    here = station()
    queue = here.card.target.queue
    watch = Watch(here, sender, queue)
    _threads.append(watch)
    _threads.append(watch.heartbeat)
    _threads.append(Reaper(app, here.client, redis_url, settings.requeue_grace, volumes=settings.volumes))
    for thread in _threads:
        thread.start()


@worker_shutting_down.connect  # type: ignore[untyped-decorator]
def _stop(**_: Any) -> None:
    for thread in _threads:
        thread.stop()
