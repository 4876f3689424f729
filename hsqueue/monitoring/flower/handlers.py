"""The pages under ``/samples`` and the JSON under ``/api/samples``, behind Flower's own login."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flower.views import BaseHandler
from tornado.ioloop import IOLoop
from tornado.web import HTTPError, StaticFileHandler, authenticated, url

from hsqueue.contracts.errors import HsqueueError, RunNotFound
from hsqueue.contracts.rid import RUN_ID
from hsqueue.monitoring.flower.source import Source

STATIC = Path(__file__).parent / "static"


def handlers(source: Source) -> list[Any]:
    """For Flower's table of addresses."""
    run, with_source = f"({RUN_ID.pattern})", {"source": source}
    return [
        url(r"/samples", SamplesPage, name="samples"),
        url(r"/samples/assets/([a-z]+\.[a-z]+)", Asset, {"path": str(STATIC)}, name="samples-asset"),
        url(f"/samples/run/{run}", RunPage, name="samples-run"),
        url(r"/api/samples", Overview, with_source, name="samples-data"),
        url(f"/api/samples/{run}", OneRun, with_source, name="samples-run-data"),
        url(f"/api/samples/{run}/shards", Shards, with_source),
        url(f"/api/samples/{run}/shards/([0-9]{{1,12}})", OneShard, with_source),
    ]


class SamplesPage(BaseHandler):  # type: ignore[misc]
    @authenticated  # type: ignore[untyped-decorator]
    def get(self) -> None:
        self.render("samples.html")


class RunPage(BaseHandler):  # type: ignore[misc]
    """Drawn for every possible run; whether there is such a one, its data say."""

    @authenticated  # type: ignore[untyped-decorator]
    def get(self, run: str) -> None:
        self.render("run.html", run=run)


class Asset(BaseHandler, StaticFileHandler):  # type: ignore[misc]
    """Scripts and styles of these pages."""

    def prepare(self) -> None:
        if not self.current_user:
            raise HTTPError(401)

    def set_extra_headers(self, path: str) -> None:  # noqa: ARG002 - tornado's signature
        # Asked for again each time, and answered with "not modified": a newer hsqueue shows its own pages.
        self.set_header("Cache-Control", "no-cache")


class Answer(BaseHandler):  # type: ignore[misc]
    """Answers with what `source` says, asked in a thread: Redis may take its time, and Flower's other pages go on."""

    def initialize(self, source: Source) -> None:
        self.source = source

    async def answer(self, ask: Callable[..., object], *args: object) -> None:
        self.set_header("Cache-Control", "no-cache")
        self.set_header("Content-Type", "application/json; charset=utf-8")
        try:
            found = await IOLoop.current().run_in_executor(None, ask, *args)
        except HsqueueError as error:
            self.set_status(404 if isinstance(error, RunNotFound) else 503)
            found = {"error": str(error)}
        self.write(found if isinstance(found, str) else json.dumps(found))


class Overview(Answer):
    @authenticated  # type: ignore[untyped-decorator]
    async def get(self) -> None:
        await self.answer(self.source.overview)


class OneRun(Answer):
    @authenticated  # type: ignore[untyped-decorator]
    async def get(self, run: str) -> None:
        await self.answer(self.source.run, run)


class Shards(Answer):
    @authenticated  # type: ignore[untyped-decorator]
    async def get(self, run: str) -> None:
        await self.answer(self.source.shards, run)


class OneShard(Answer):
    @authenticated  # type: ignore[untyped-decorator]
    async def get(self, run: str, shard: str) -> None:
        await self.answer(self.source.shard, run, int(shard))
