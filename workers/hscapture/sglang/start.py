"""A loaded model made ready for capture: checked, armed, described, and connected to the writer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from hscapture.card import write_card
from hscapture.complaints import Complaints
from hscapture.config import CaptureSettings
from hscapture.janitor import Janitor
from hscapture.ridlayout import RidLayout
from hscapture.sglang.decoder import arm, find_decoder
from hscapture.sglang.describe import build_card, head_scale, shape_of
from hscapture.sglang.fitness import require_fit
from hscapture.sglang.forward import Recipe
from hscapture.sglang.pool import BufferPool, host_memory
from hscapture.sglang.session import Session
from hscapture.sglang.stage import Stager
from hscapture.sglang.taps import tap_final_norm, tap_first_layer
from hscapture.writer import DumpWriter
from hsqueue.contracts.card import EngineCard
from hsqueue.contracts.errors import VolumeUnusable
from hsqueue.contracts.layers import parse_layers


@dataclass(frozen=True, slots=True)
class Armed:
    """A model that captures, as its card says. recipe: what to take of its forward passes."""

    card: EngineCard
    recipe: Recipe


def arm_model(runner: Any, settings: CaptureSettings, version: str) -> Armed:
    """Makes the model of SGLang's ``ModelRunner`` capture; the same on every rank, since captured layers may
    change how ranks communicate.

    Raises EngineUnfit or UsageError where it cannot be done exactly.
    """
    require_fit(runner.server_args, runner.model_config)
    shape = shape_of(runner.model_config)
    layers = parse_layers(settings.layers, shape.num_layers)
    decoder = find_decoder(runner.model, shape.num_layers, shape.hidden_size)
    capture = arm(runner.model, layers, shape.num_layers, default=settings.layers == "eagle3")
    card = build_card(runner.server_args, runner.model_config, version, settings.norm, layers, capture)
    scale = head_scale(runner.model_config)
    taps = tap_first_layer(decoder), tap_final_norm(decoder)
    return Armed(card, Recipe(layers, shape.num_layers, settings.norm, scale, *taps))


def open_session(armed: Armed, settings: CaptureSettings, device: torch.device) -> Session:
    """Writers, janitor, buffers, and the card in the dump directory. Raises VolumeUnusable."""
    try:
        write_card(settings.dump_dir, armed.card)
        layout = RidLayout(settings.dump_dir, armed.card, settings.limit, settings.wait)
    except OSError as error:
        raise VolumeUnusable(
            f"dumps cannot be written to {settings.dump_dir} ({error.strerror or error})",
            do="Point HSQ_DUMP_DIR at a writable directory with space, such as one in /dev/shm.",
        ) from None
    complaints = Complaints(settings.dump_dir)
    janitor = Janitor(settings.dump_dir, settings.ttl)
    writer = DumpWriter(layout.write, settings.writers, settings.pending_bytes, janitor.remove, complaints)
    pool = BufferPool(host_memory(pinned=device.type == "cuda"), keep_bytes=settings.pending_bytes)
    return Session(armed.recipe, Stager(device, pool), settings.wants, writer.submit, writer.discard, complaints)
