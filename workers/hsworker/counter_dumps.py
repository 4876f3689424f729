"""The older layout: ``req_<counter>/``, written in place, without a word on whose states these are.

States lie in ``.pt`` or ``.safetensors`` files, the number of rows in ``meta.json``. A dump counts as complete
when ``meta.json`` is whole, every state tensor loads with that many rows, and nothing changed between two looks.
The chosen dump is rewritten beside the others in the contract's form, so that all that follows is the same.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hsqueue.contracts.card import EngineCard
from hsqueue.contracts.dump import AUX, DUMP_FILE, INPUT_IDS, LAST, DumpMeta, expected_tensors
from hsqueue.contracts.errors import (
    DependencyMissing,
    DumpAmbiguous,
    DumpMalformed,
    DumpMismatch,
    DumpMissing,
)
from hsqueue.contracts.rid import RequestId
from hsqueue.contracts.sample import Sample
from hsqueue.contracts.tensorfile import build_header, layout
from hsworker.counter_match import Ambiguity, CounterMatcher
from hsworker.dumps import Dump, read_dump

POLL = 0.02
META_LIMIT = 1 << 20
"""Bytes of a meta.json; a real one is a line."""
NAMES: Mapping[str, Sequence[str]] = {
    AUX: (AUX, "aux_hidden_state", "aux"),
    LAST: (LAST, "last_hidden_states", "hidden_states", "hidden_state", "last"),
}
"""Keys and file names under which older scripts left the two tensors."""

_DIRECTORY = re.compile(r"req_(\d{1,18})", re.ASCII)

Identity = tuple[str, int, int]
"""Name, inode and time of a dump's meta.json; a restarted engine counts from zero again under the same names."""


class CounterDumps:
    """card: of the engine; dumps of this layout say nothing of their layers. workspace: for the rewritten dumps.

    One process a directory: bookkeeping of lengths in flight cannot be shared.
    """

    def __init__(self, directory: Path, card: EngineCard, workspace: Path, settle: float, patience: float) -> None:
        self.directory, self.card, self.workspace = directory, card, workspace
        self._lock = threading.Condition()
        self._next_look = 0.0
        self._matcher = CounterMatcher({i for i, _ in _scan(directory)}, settle, patience)

    def announce(self, rid: RequestId, sample: Sample) -> None:
        """Waits until no other request of this length is in flight. Raises DumpAmbiguous where that is no help."""
        deadline = time.monotonic() + 10 * self._matcher.patience
        with self._lock:
            while True:
                self._look()
                verdict = self._matcher.may_announce(sample.tokens, time.monotonic())
                if verdict is True:
                    self._matcher.announce(str(rid), sample.tokens)
                    return
                if isinstance(verdict, Ambiguity):
                    raise _ambiguous(verdict, rid)
                if time.monotonic() >= deadline:
                    raise _ambiguous(Ambiguity(f"another request of {sample.tokens} tokens does not end"), rid)
                self._lock.wait(POLL)

    def wait(self, rid: RequestId, sample: Sample, timeout: float) -> Dump:
        deadline = time.monotonic() + timeout
        problem = "none of that many tokens appeared"
        while True:
            with self._lock:
                self._look()
                chosen = self._matcher.choose(str(rid), time.monotonic())
            if isinstance(chosen, Ambiguity):
                raise _ambiguous(chosen, rid)
            if isinstance(chosen, tuple):
                source = self.directory / str(chosen[0])
                try:
                    return self._rewrite(source, rid, sample)
                except DumpMalformed as error:
                    problem = error.problem
            if time.monotonic() >= deadline:
                raise DumpMissing(
                    f"no complete dump in {self.directory} within {timeout:.0f} s of the response ({problem})",
                    sample=rid,
                )
            time.sleep(POLL)

    def forget(self, rid: RequestId, *, orphaned: bool) -> None:
        shutil.rmtree(self.workspace / rid.directory, ignore_errors=True)
        with self._lock:
            self._matcher.forget(str(rid), time.monotonic(), orphaned=orphaned)
            self._lock.notify_all()

    def _look(self) -> None:
        """Called with the lock held; many threads ask, one look serves them."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + POLL
        for identity, tokens in _scan(self.directory):
            if self._matcher.is_new(identity):
                self._matcher.appeared(identity, tokens, time.monotonic())

    def _rewrite(self, source: Path, rid: RequestId, sample: Sample) -> Dump:
        """The dump in the contract's form. Raises DumpMalformed while it is not complete."""
        before = _footprint(source)
        tensors = _load(source)
        if before != _footprint(source):
            raise DumpMalformed("the dump is still being written")
        card = self.card
        wanted = expected_tensors(sample.tokens, len(card.layers), card.hidden_size, card.norm, card.dtype)
        parts: list[bytes | memoryview] = [sample.input_ids.tobytes()]
        for name, code, shape in wanted:
            if name != INPUT_IDS:
                parts.append(_bytes_of(tensors, name, code, shape, rid))
        meta = DumpMeta(
            rid=str(rid), num_tokens=sample.tokens, prefix_len=0, chunks=(sample.tokens,), layers=card.layers,
            layers_asked=card.layers_asked, layers_held=card.layers_held, norm=card.norm, dtype=card.dtype,
            nonfinite=tuple(n for n in (AUX, LAST) if n in tensors and not bool(tensors[n].isfinite().all())),
            model=card.model, server=card.server, engine=card.instance,
        )  # fmt: skip
        target = self.workspace / rid.directory / DUMP_FILE
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            file.write(build_header(layout(wanted), meta.to_metadata()))
            for part in parts:
                file.write(part)
        shutil.rmtree(source, ignore_errors=True)
        return read_dump(target, sample.tokens)


def _ambiguous(ambiguity: Ambiguity, rid: RequestId) -> DumpAmbiguous:
    return DumpAmbiguous(
        f"dumps without a request id cannot be told apart: {ambiguity.why}", sample=rid,
        do="It is tried again alone; hsqueue's own capture plugin names every dump.",
    )  # fmt: skip


def _scan(directory: Path) -> list[tuple[Identity, int]]:
    """Dumps whose ``meta.json`` is whole: identity and rows."""
    found = []
    with os.scandir(directory) as entries:
        names = [entry.name for entry in entries if _DIRECTORY.fullmatch(entry.name)]
    for name in names:
        path = directory / name / "meta.json"
        try:
            with path.open("rb") as file:
                before = os.fstat(file.fileno())
                rows = json.loads(file.read(META_LIMIT))["num_tokens"]
                status = os.fstat(file.fileno())
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue
        if before.st_mtime_ns != status.st_mtime_ns:
            # Written while it was read: its time, a part of its identity, may change once more.
            continue
        if isinstance(rows, int) and not isinstance(rows, bool) and rows >= 0:
            found.append(((name, status.st_ino, status.st_mtime_ns), rows))
    return found


def _footprint(source: Path) -> list[tuple[str, int, int]]:
    try:
        with os.scandir(source) as entries:
            return sorted((e.name, e.stat().st_size, e.stat().st_mtime_ns) for e in entries)
    except FileNotFoundError:
        raise DumpMalformed("the dump went away") from None


def _load(source: Path) -> dict[str, Any]:
    """Every tensor in the dump's files under the contract's names. Raises DumpMalformed while one is torn."""
    try:
        import torch
        from safetensors.torch import load_file
    except ImportError:
        raise DependencyMissing(
            "dumps of the older layout need torch", do="Install it: pip install 'hsqueue[engine]'."
        ) from None
    found: dict[str, Any] = {}
    for path in sorted(source.iterdir()):
        try:
            if path.suffix == ".pt":
                content = torch.load(path, map_location="cpu", weights_only=True)
            elif path.suffix == ".safetensors":
                content = load_file(path)
            else:
                continue
        except Exception as error:  # noqa: BLE001 - a file that is being written fails in every way there is
            raise DumpMalformed(f"{path.name} is not whole ({type(error).__name__})") from None
        found |= content if isinstance(content, dict) else {path.stem: content}
    result = {}
    for name, aliases in NAMES.items():
        present = [found[alias] for alias in aliases if alias in found]
        if not present:
            raise DumpMalformed(f"the dump has no {name} yet")
        tensor = present[0]
        if isinstance(tensor, list | tuple):
            tensor = torch.cat([t.reshape(-1, t.shape[-1]) for t in tensor], dim=-1)
        result[name] = tensor.reshape(-1, tensor.shape[-1])
    return result


def _bytes_of(tensors: Mapping[str, Any], name: str, code: str, shape: tuple[int, ...], rid: RequestId) -> memoryview:
    import torch

    tensor = tensors.get(name)
    if tensor is None:
        raise DumpMismatch(f"the older layout holds no {name}", sample=rid, do="Plan the run with --norm post.")
    found = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32"}.get(tensor.dtype)
    if (found, tuple(tensor.shape)) != (code, shape):
        raise DumpMismatch(
            f"{name} of another type or shape",
            expected=(code, shape),
            found=(found, tuple(tensor.shape)),
            sample=rid,
        )
    return memoryview(tensor.contiguous().view(torch.uint8).numpy()).cast("B")
