"""The engine put together: port, model, capture, scheduler, HTTP; and taken apart again in good order."""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

import torch
import uvicorn
from starlette.applications import Starlette

from hscapture.assemble import Dump
from hscapture.card import write_card
from hscapture.complaints import Complaints
from hscapture.config import CaptureSettings, from_environment
from hscapture.janitor import Janitor
from hscapture.legacy import CounterLayout, Form, next_counter
from hscapture.ridlayout import RidLayout
from hscapture.writer import DumpWriter
from hsengine.app import Api, Site
from hsengine.dumping import DumpMischief, TornCounterLayout, TornRidLayout, leave_stale_dumps, submit_late
from hsengine.misbehave import Misbehaviour, Mischief, parse_misbehaviour
from hsengine.model import Model, ModelInfo, load_model, read_info
from hsengine.options import Options
from hsengine.payload import RESERVED, Rules
from hsengine.policy import Limits
from hsengine.probe import probe
from hsengine.process import bind, die_with_parent, exit_cleanly_on_signals
from hsengine.scheduler import Item, Scheduler, Stop
from hsengine.stats import Stats
from hsengine.text import Text
from hsengine.tiny import model_directory
from hsqueue import __version__
from hsqueue.contracts import CONTRACT_VERSION
from hsqueue.contracts.card import EngineCard
from hsqueue.contracts.errors import VolumeUnusable
from hsqueue.contracts.layers import parse_layers
from hsqueue.contracts.weights import weights_digest

log = logging.getLogger("hsengine")

GRACE_SECONDS = 3
"""For requests in flight, then for the pass that runs, then for dumps being written."""


def serve(options: Options) -> None:
    """Runs the engine until it is told to stop. Raises UsageError, EngineUnfit or VolumeUnusable before that."""
    if options.die_with_parent:
        die_with_parent()
    exit_cleanly_on_signals()
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.INFO, stream=sys.stderr)
    torch.set_num_threads(options.threads)
    plan = parse_misbehaviour(options.misbehave)
    settings = from_environment(options.environment())
    info = read_info(options.model or model_directory(), options.dtype)
    layers = parse_layers(settings.layers, info.num_layers)
    with bind(options.host, options.port) as listener:
        model = load_model(info, layers, settings.norm)
        probe(model)
        card = build_card(info, layers, settings.norm, options.host, listener.getsockname()[1])
        run(options, settings, plan, model, card, listener)


def build_card(info: ModelInfo, layers: tuple[int, ...], norm: str, host: str, port: int) -> EngineCard:
    return EngineCard(
        contract=CONTRACT_VERSION,
        instance=uuid.uuid4().hex,
        model=str(info.directory),
        weights=weights_digest(info.directory),
        num_layers=info.num_layers,
        hidden_size=info.hidden_size,
        vocab_size=info.vocab_size,
        context_length=info.context_length - RESERVED,
        dtype=info.dtype,
        layers=layers,
        layers_asked=layers,
        layers_held=layers,
        norm=norm,
        server=f"hsengine {__version__}",
        host=host,
        port=port,
        pid=os.getpid(),
        started=time.time(),
        ranks={"tp": 1, "pp": 1, "dp": 1},
        device="cpu",
    )


def run(
    options: Options,
    settings: CaptureSettings,
    plan: Misbehaviour,
    model: Model,
    card: EngineCard,
    listener: socket.socket,
) -> None:
    """Serves until a signal comes; then what was computed is still written, and what was not is aborted."""
    writer = DumpWriter(
        dump_write(options, settings, plan, card),
        settings.writers,
        settings.pending_bytes,
        complaints=Complaints(settings.dump_dir),
    )
    janitor = Janitor(settings.dump_dir, settings.ttl)
    stats, mischief, text = Stats(), Mischief(plan), Text(model.info.directory)
    every_request = options.dump_layout == "counter"
    rules = Rules(
        context_length=model.info.context_length,
        stop_tokens=model.stop_tokens,
        encode=text.encode,
        wants=lambda rid: every_request or settings.wants(rid),
    )
    inbox: SimpleQueue[Item] = SimpleQueue()
    api = Api(Site(inbox.put, rules, text.decode, card, stats, writer, mischief))
    limits = Limits(options.prefill_tokens, options.chunk, options.max_running)
    submit_dump = submit_late(writer.submit, plan)
    scheduler = Scheduler(inbox, model, limits, submit_dump, api.on_finished, stats, mischief, options.threads)
    scheduler.start()
    try:
        Server(api.application(), card, settings.dump_dir, options.ready_file).run(sockets=[listener])
    finally:
        inbox.put(Stop())
        scheduler.join(GRACE_SECONDS)
        writer.close(GRACE_SECONDS)
        janitor.close(GRACE_SECONDS)


def dump_write(
    options: Options, settings: CaptureSettings, plan: Misbehaviour, card: EngineCard
) -> Callable[[Dump], None]:
    """What writes one dump. Leaves the card and any stale dumps in the directory.

    Raises VolumeUnusable where the directory cannot be written to.
    """
    try:
        if options.dump_layout == "counter":
            form = Form(options.counter_form)
            leave_stale_dumps(CounterLayout(settings.dump_dir, form, next_counter(settings.dump_dir)).write, card, plan)
            write = TornCounterLayout(settings.dump_dir, form, plan).write
        else:
            leave_stale_dumps(RidLayout(settings.dump_dir, card).write, card, plan)
            write = TornRidLayout(settings.dump_dir, card, settings.limit, settings.wait, plan).write
        write_card(settings.dump_dir, card)
    except OSError as error:
        raise VolumeUnusable(
            f"dumps cannot be written to {settings.dump_dir} ({error.strerror or error})",
            do="Name a writable directory with --dump-dir or HSQ_DUMP_DIR.",
        ) from None
    return DumpMischief(write, plan).write


class Server(uvicorn.Server):
    """Says when it accepts requests: in a line on standard error and, where asked, in a file.

    ready_file: JSON of url, host, port, pid, model, dump_dir and instance; appears complete.
    """

    def __init__(self, application: Starlette, card: EngineCard, dump_dir: Path, ready_file: Path | None) -> None:
        super().__init__(
            uvicorn.Config(application, log_level="warning", access_log=False, timeout_graceful_shutdown=GRACE_SECONDS)
        )
        self._card, self._dump_dir, self._ready_file = card, dump_dir, ready_file

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.started:
            return
        card = self._card
        host = f"[{card.host}]" if ":" in card.host else card.host
        url = f"http://{host}:{card.port}"
        log.info("ready at %s: %s, layers %s, dumps in %s", url, card.model, list(card.layers), self._dump_dir)
        if self._ready_file is not None:
            ready = {
                "url": url,
                "host": card.host,
                "port": card.port,
                "pid": card.pid,
                "model": card.model,
                "dump_dir": str(self._dump_dir),
                "instance": card.instance,
            }
            temporary = self._ready_file.with_name(f".{self._ready_file.name}.{card.pid}")
            temporary.write_text(json.dumps(ready), encoding="utf-8")
            temporary.replace(self._ready_file)
