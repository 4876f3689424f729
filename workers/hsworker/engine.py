"""The HTTP side of one engine: SGLang's ``/generate`` and what is around it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, cast

import orjson
from urllib3 import Timeout
from urllib3.connectionpool import connection_from_url
from urllib3.exceptions import HTTPError, LocationValueError, NewConnectionError, ProtocolError, TimeoutError
from urllib3.util import parse_url

from hsqueue.contracts.errors import EngineDown, EngineRefused, RequestTimeout, SampleRefused, UsageError
from hsworker.matching import Response, parse_response

SHAPE = "Write it as http://HOST:PORT."
CONNECT_TIMEOUT = 5.0
QUICK_TIMEOUT = 10.0
ANSWER_LIMIT = 16 << 20
"""Bytes; what an engine says of a request is a few kilobytes, since its states go another way."""


@dataclass(frozen=True, slots=True)
class Answer:
    """status: of HTTP. body: all of it."""

    status: int
    body: bytes

    @property
    def message(self) -> str:
        """The body in one short line."""
        return " ".join(self.body[:1000].decode(errors="replace").split())[:200]


class EngineClient:
    """url: ``http://host:port``. connections: kept open. timeout: seconds to wait for one prefill."""

    def __init__(self, url: str, *, connections: int = 4, timeout: float = 600.0) -> None:
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"engine URL {url!r} is not understood", do=SHAPE)
        if "@" in url or "?" in url or "#" in url:
            # It is shown in logs, in Redis and by hsqueue status.
            raise UsageError("an engine URL may hold no password and no query", do=SHAPE)
        self.url, self.timeout = url.rstrip("/"), timeout
        try:
            # A pool goes to its own host alone, and takes nothing from the environment: no proxy, no netrc.
            self._pool = connection_from_url(self.url, maxsize=connections)
            self._path = parse_url(self.url).path or ""
        except LocationValueError as error:
            raise UsageError(f"engine URL {url!r} is not understood ({error})", do=SHAPE) from None

    def prefill(self, rid: str, input_ids: list[int]) -> Response:
        """Runs one prompt through the model and waits for the answer.

        Raises EngineDown where nothing answers any more, RequestTimeout, SampleRefused for a 400, EngineRefused
        for any other status or answer, ResponseMismatch for an answer of the wrong form.
        """
        body = {
            "input_ids": input_ids,
            "rid": rid,
            # A key of its own keeps the prefix cache from shortening this prefill; it may stay on for others.
            "extra_key": rid,
            "sampling_params": {"max_new_tokens": 0, "temperature": 0},
            "stream": False,
        }
        try:
            answer = self._call("POST", "generate", (CONNECT_TIMEOUT, self.timeout), body)
        except HTTPError as error:
            # To be refused counts as a timeout in some of urllib3's versions.
            if isinstance(error, NewConnectionError) or not isinstance(error, TimeoutError):
                raise EngineDown(f"{self.url} dropped the connection ({type(error).__name__})", sample=rid) from None
            self.abort(rid)
            raise RequestTimeout(
                f"no answer within {self.timeout:.0f} s", sample=rid,
                do="If prompts take longer, raise HSQ_REQUEST_TIMEOUT.",
            ) from None  # fmt: skip
        if answer.status == 400:
            raise SampleRefused(f"{self.url} refuses the prompt: {answer.message}", sample=rid)
        if answer.status != 200:
            raise EngineRefused(f"{self.url} answered {answer.status}: {answer.message}", sample=rid)
        try:
            return parse_response(json.loads(answer.body), rid)
        except (ValueError, RecursionError):
            raise EngineRefused(f"{self.url} answered something that is not JSON", sample=rid) from None

    def alive(self) -> bool:
        """Whether the engine answers at all; runs no prefill."""
        try:
            return self._call("GET", "model_info", (2.0, QUICK_TIMEOUT)).status == 200
        except HTTPError:
            return False

    def server_info(self) -> dict[str, Any]:
        """SGLang's ``/server_info``. Raises EngineDown, naming what to check."""
        for page in ("server_info", "get_server_info"):
            try:
                answer = self._call("GET", page, (CONNECT_TIMEOUT, QUICK_TIMEOUT))
                found = json.loads(answer.body) if answer.status == 200 else None
                if isinstance(found, dict):
                    return cast(dict[str, Any], found)
            except (HTTPError, ValueError, RecursionError) as error:
                raise EngineDown(
                    f"no engine answers at {self.url} ({type(error).__name__})",
                    do="Start it, or correct --engine; SGLang takes minutes to load a large model.",
                ) from None
        raise EngineDown(
            f"{self.url} answers, but not as SGLang does", do="Give the URL of an SGLang server or hsqueue engine."
        )

    def abort(self, rid: str) -> None:
        """Asks the engine to drop a request; a client that goes away does not stop its prefill."""
        try:
            self._call("POST", "abort_request", (2.0, 2.0), {"rid": rid})
        except HTTPError:
            return

    def _call(self, method: str, page: str, timeout: tuple[float, float], body: object = None) -> Answer:
        """One request to the configured engine and to no other: a redirect is an answer like any other.

        Raises HTTPError, also for an answer longer than ANSWER_LIMIT.
        """
        connect, read = timeout
        with self._pool.urlopen(
            method,
            f"{self._path}/{page}",
            body=None if body is None else orjson.dumps(body),
            headers=None if body is None else {"Content-Type": "application/json"},
            timeout=Timeout(connect=connect, read=read),
            retries=False,
            redirect=False,
            preload_content=False,
        ) as answer:
            data = bytearray()
            for chunk in answer.stream(1 << 16):
                data += chunk
                if len(data) > ANSWER_LIMIT:
                    raise ProtocolError(f"an answer of more than {ANSWER_LIMIT} bytes")
            return Answer(answer.status, bytes(data))
