"""SGLang's HTTP side, as far as a client that extracts hidden states can see it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import asdict, dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hscapture.writer import DumpWriter
from hsengine.misbehave import Mischief
from hsengine.payload import Rules, answer, error, parse_generate
from hsengine.request import Finish, Request
from hsengine.scheduler import Abort, Finished, Item
from hsengine.stats import HEALTH_PREFIX, Stats
from hsqueue.contracts.card import EngineCard
from hsqueue.contracts.errors import SampleRefused

Handler = Callable[[HttpRequest], Coroutine[Any, Any, Response]]


@dataclass(frozen=True, slots=True)
class Site:
    """What the pages need. submit: hands an item to the scheduler. decode: token ids to text."""

    submit: Callable[[Item], None]
    rules: Rules
    decode: Callable[[list[int]], str]
    card: EngineCard
    stats: Stats
    writer: DumpWriter
    mischief: Mischief


class Api:
    """Requests in flight, by rid; lives on the event loop."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._waiters: dict[str, asyncio.Future[Finish]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def on_finished(self, finished: Finished) -> None:
        """For the scheduler's thread. One wake-up of the event loop for all that ended in a pass."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._resolve, finished)

    def _resolve(self, finished: Finished) -> None:
        for request, finish in finished:
            waiter = self._waiters.pop(request.rid, None)
            if waiter is not None and not waiter.done():
                waiter.set_result(finish)

    async def run(self, requests: list[Request]) -> list[Finish]:
        """Runs requests to their end. Raises SampleRefused where a rid is in flight already."""
        seen: set[str] = set()
        for request in requests:
            if request.rid in self._waiters or request.rid in seen:
                raise SampleRefused(f"Duplicate request ID detected: {request.rid}")
            seen.add(request.rid)
        loop = asyncio.get_running_loop()
        waiters = [loop.create_future() for _ in requests]
        for request, waiter in zip(requests, waiters, strict=True):
            self._waiters[request.rid] = waiter
            self._site.submit(request)
        return [await waiter for waiter in waiters]

    async def generate(self, http: HttpRequest) -> Response:
        try:
            parsed = parse_generate(await http.json(), self._site.rules)
            self._site.stats.asked.extend((r.rid, len(r.input_ids)) for r in parsed.requests)
            first = parsed.requests[0].rid
            if self._site.mischief.unavailable(first):
                return JSONResponse(error("The server is overloaded"), 503)
            finishes = await self.run(parsed.requests)
        except (SampleRefused, ValueError) as refusal:
            self._site.stats.refused += 1
            return JSONResponse(error(str(refusal)), 400)
        if delay := self._site.mischief.response_delay(first):
            await asyncio.sleep(delay)
        answers = [
            self._site.mischief.answer(answer(request, finish, self._site.decode(request.output_ids)))
            for request, finish in zip(parsed.requests, finishes, strict=True)
        ]
        return JSONResponse(answers if parsed.batched else answers[0])

    async def health(self, _: HttpRequest) -> Response:
        """As in SGLang, a real prefill of one token."""
        await self.own_request(f"{HEALTH_PREFIX}_{time.time()}", [0])
        return Response()

    async def own_request(self, rid: str, input_ids: list[int]) -> None:
        """A request that the engine makes of itself."""
        self._site.stats.asked.append((rid, len(input_ids)))
        await self.run([Request(rid, input_ids, 1, wants_capture=self._site.rules.wants(rid))])

    async def abort(self, http: HttpRequest) -> Response:
        body = await http.json()
        rid = "" if body.get("abort_all") else body.get("rid")
        if isinstance(rid, str) and (rid or body.get("abort_all")):
            self._site.submit(Abort(rid))
        return Response()

    async def flush_cache(self, _: HttpRequest) -> Response:
        return Response("Cache flushed.\n")

    async def model_info(self, _: HttpRequest) -> Response:
        card = self._site.card
        return JSONResponse(
            {
                "model_path": card.model,
                "tokenizer_path": card.model,
                "is_generation": True,
                "weight_version": "default",
            }
        )

    async def server_info(self, _: HttpRequest) -> Response:
        card, rules = self._site.card, self._site.rules
        return JSONResponse(
            {
                "model_path": card.model,
                "tokenizer_path": card.model,
                "host": card.host,
                "port": card.port,
                "dtype": card.dtype,
                "context_length": rules.context_length,
                "max_req_input_len": rules.max_input,
                "disable_radix_cache": True,
                "version": card.server.removeprefix("hsengine "),
                "server": card.server,
                "hsq_instance": card.instance,
            }
        )

    async def stats(self, _: HttpRequest) -> Response:
        writer = self._site.writer.stats
        dumps = {f"dumps_{name}": value for name, value in asdict(writer).items()}
        return JSONResponse({**self._site.stats.counters(), **dumps})

    async def requests(self, _: HttpRequest) -> Response:
        return JSONResponse(self._site.stats.requests())

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """Warm-up before the first request, health checks of its own meanwhile, as far as asked for."""
        self._loop = asyncio.get_running_loop()
        plan = self._site.mischief.plan
        if plan.warmup:
            await self.own_request(self._site.mischief.warmup_rid(), [1, 2, 3, 4, 5, 6])
        checks = asyncio.create_task(self._check_health(plan.health_every))
        yield
        checks.cancel()

    async def _check_health(self, every: float) -> None:
        while every > 0:
            await self.own_request(f"{HEALTH_PREFIX}_{time.time()}", [0])
            await asyncio.sleep(every)

    def application(self) -> Starlette:
        pages: dict[str, tuple[Handler, list[str]]] = {
            "/generate": (self.generate, ["POST", "PUT"]),
            "/health": (self.health, ["GET"]),
            "/health_generate": (self.health, ["GET"]),
            "/model_info": (self.model_info, ["GET"]),
            "/get_model_info": (self.model_info, ["GET"]),
            "/server_info": (self.server_info, ["GET"]),
            "/get_server_info": (self.server_info, ["GET"]),
            "/abort_request": (self.abort, ["POST"]),
            "/flush_cache": (self.flush_cache, ["GET", "POST"]),
            "/hsq/stats": (self.stats, ["GET"]),
            "/hsq/requests": (self.requests, ["GET"]),
        }
        routes = [Route(path, handler, methods=methods) for path, (handler, methods) in pages.items()]
        return Starlette(routes=routes, lifespan=self.lifespan)
