"""Simulated engines: SGLang's ``/generate`` with fixed service times, and real dumps as the capture plugin leaves them.

    python benchmarks/simulated.py ROOT [--engines 1] [--tokens-per-second 5000] [--hidden 4096]

Each engine has a port and a dump directory of its own, ROOT/<number>, with its card. It serves one prompt after
the other, each for as many seconds as its tokens take at the given rate, and then answers and writes the dump: header
and token ids are the request's, the states are the same bytes for all. No model runs. All engines share one process.
ROOT/engines.json is written when all of them answer. ``/busy`` tells how many seconds an engine has served so far.
"""

from __future__ import annotations

import argparse
import array
import asyncio
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hsqueue.contracts import CONTRACT_VERSION
from hsqueue.contracts.card import CARD_NAME, EngineCard
from hsqueue.contracts.dump import DUMP_FILE, INPUT_IDS, DumpMeta, expected_tensors
from hsqueue.contracts.rid import dump_directory_name, parse_rid
from hsqueue.contracts.tensorfile import build_header, layout

LAYERS = (2, 18, 33)
VOCABULARY = 32_000
CONTEXT = 8192
READY = "engines.json"
WRITERS = 2


class Engine:
    """One simulated server. rate: tokens it serves a second. states: at least as many bytes as one dump holds."""

    def __init__(self, directory: Path, rate: float, hidden: int, states: memoryview, pool: ThreadPoolExecutor) -> None:
        directory.mkdir(parents=True, mode=0o700)
        self.directory, self.rate, self.hidden, self.states, self.pool = directory, rate, hidden, states, pool
        self.card: EngineCard | None = None
        self.free_at = self.served = 0.0
        self.tokens = 0

    async def start(self) -> str:
        """Its URL."""
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, limit=1 << 20)
        port = server.sockets[0].getsockname()[1]
        self.card = EngineCard(
            contract=CONTRACT_VERSION, instance=f"simulated-{port}", model="simulated", weights="0123456789abcdef",
            num_layers=36, hidden_size=self.hidden, vocab_size=VOCABULARY, context_length=CONTEXT, dtype="bfloat16",
            layers=LAYERS, layers_asked=LAYERS, layers_held=LAYERS, norm="post", server="simulated 1",
            host="127.0.0.1", port=port, pid=os.getpid(), started=time.time(), ranks={"tp": 1, "pp": 1, "dp": 1},
        )  # fmt: skip
        (self.directory / CARD_NAME).write_text(self.card.to_json())
        return f"http://127.0.0.1:{port}"

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                length = next((int(s[15:]) for s in head.split("\r\n") if s.lower().startswith("content-length:")), 0)
                body = await reader.readexactly(length)
                answer = json.dumps(await self._answer(head.split(" ", 2)[1], body)).encode()
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(answer)
                )
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async def _answer(self, page: str, body: bytes) -> dict[str, Any]:
        assert self.card is not None
        if page == "/generate":
            return await self._generate(json.loads(body))
        if page == "/busy":
            return {"served": self.served - max(0.0, self.free_at - time.monotonic()), "tokens": self.tokens}
        return {"port": self.card.port, "hsq_instance": self.card.instance, "model_path": self.card.model}

    async def _generate(self, request: dict[str, Any]) -> dict[str, Any]:
        rid, ids = request["rid"], array.array("q", request["input_ids"])
        service = len(ids) / self.rate
        self.free_at = max(self.free_at, time.monotonic()) + service
        # What is served later than now is taken off where it is told.
        self.served += service
        self.tokens += len(ids)
        await asyncio.sleep(self.free_at - time.monotonic())
        if parse_rid(rid):
            self.pool.submit(self._dump, rid, ids)
        info = {"id": rid, "prompt_tokens": len(ids), "cached_tokens": 0, "finish_reason": {"type": "length"}}
        return {"text": "", "meta_info": info}

    def _dump(self, rid: str, ids: array.array[int]) -> None:
        card = self.card
        assert card is not None
        specs = layout(expected_tensors(len(ids), len(LAYERS), self.hidden, card.norm, card.dtype))
        meta = DumpMeta(
            rid=rid, num_tokens=len(ids), prefix_len=0, chunks=(len(ids),), layers=LAYERS, layers_asked=LAYERS,
            layers_held=LAYERS, norm=card.norm, dtype=card.dtype, nonfinite=(), model=card.model,
            server=card.server, engine=card.instance,
        )  # fmt: skip
        buffers = [memoryview(build_header(specs, meta.to_metadata()))]
        for spec in specs:
            size = spec.end - spec.begin
            buffers.append(memoryview(ids).cast("B") if spec.name == INPUT_IDS else self.states[:size])
        temporary = self.directory / f".tmp-{rid}"
        temporary.mkdir()
        with (temporary / DUMP_FILE).open("wb", buffering=0) as file:
            for buffer in buffers:
                while buffer:
                    buffer = buffer[file.write(buffer) :]
        temporary.rename(self.directory / dump_directory_name(rid))


async def serve(root: Path, count: int, rate: float, hidden: int) -> None:
    states = memoryview(os.urandom(CONTEXT * len(LAYERS) * hidden * 2))
    pool = ThreadPoolExecutor(WRITERS)
    engines = [Engine(root / str(number), rate, hidden, states, pool) for number in range(count)]
    urls = [await engine.start() for engine in engines]
    ready = root / f"{READY}.tmp"
    ready.write_text(json.dumps(urls))
    ready.rename(root / READY)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("--engines", type=int, default=1)
    parser.add_argument("--tokens-per-second", type=float, default=5000)
    parser.add_argument("--hidden", type=int, default=4096)
    options = parser.parse_args()
    asyncio.run(serve(options.root, options.engines, options.tokens_per_second, options.hidden))


if __name__ == "__main__":
    main()
