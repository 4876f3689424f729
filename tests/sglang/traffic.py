"""What else a server has to do while prompts are captured: nothing of it may leave a dump or move a row."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import threading
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import requests

from tests.sglang.probe import new_rid, prompt

Act = Callable[[str, random.Random], None]


def health_check(url: str, _: random.Random) -> None:
    """A real prefill of one token, and on a mixed server a decode row."""
    requests.get(f"{url}/health_generate", timeout=60)


def other_client(url: str, chance: random.Random) -> None:
    """Generates a few tokens under a rid of its own, with a prefix that it has sent before."""
    ids = prompt(chance.randrange(3), 40) + prompt(chance.random().__hash__(), chance.randint(1, 30))
    body = {"input_ids": ids, "sampling_params": {"max_new_tokens": chance.randint(1, 12), "ignore_eos": True}}
    requests.post(f"{url}/generate", json=body, timeout=60)


def abort(url: str, chance: random.Random) -> None:
    """One of hsqueue's own requests, aborted as soon as it is sent."""
    rid = str(new_rid())
    sender = threading.Thread(target=_post, args=(url, rid, chance.randint(100, 600)))
    sender.start()
    threading.Event().wait(chance.random() * 0.05)
    requests.post(f"{url}/abort_request", json={"rid": rid}, timeout=60)
    sender.join(60)


def disconnect(url: str, chance: random.Random) -> None:
    """One of hsqueue's own requests, whose client goes away."""
    where = urlsplit(url)
    body = json.dumps(_body(str(new_rid()), chance.randint(100, 600))).encode()
    head = f"POST /generate HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Type: application/json\r\n"
    with socket.create_connection((where.hostname or "", where.port or 0), timeout=10) as connection:
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)


def _body(rid: str, tokens: int) -> dict[str, object]:
    ids = prompt(hash(rid), tokens)
    return {"input_ids": ids, "rid": rid, "extra_key": rid, "sampling_params": {"max_new_tokens": 0}}


def _post(url: str, rid: str, tokens: int) -> None:
    with contextlib.suppress(requests.RequestException):
        requests.post(f"{url}/generate", json=_body(rid, tokens), timeout=60)


@contextlib.contextmanager
def traffic(url: str, **per_second: tuple[Act, float]) -> Iterator[dict[str, int]]:
    """Runs each act so many times a second until the block ends; yields how often each was done."""
    done = dict.fromkeys(per_second, 0)
    over = threading.Event()

    def keep_on(name: str, act: Act, pause: float) -> None:
        chance = random.Random(name)
        while not over.wait(pause):
            act(url, chance)
            done[name] += 1

    threads = [threading.Thread(target=keep_on, args=(name, act, 1 / rate)) for name, (act, rate) in per_second.items()]
    for thread in threads:
        thread.start()
    try:
        yield done
    finally:
        over.set()
        for thread in threads:
            thread.join(60)
