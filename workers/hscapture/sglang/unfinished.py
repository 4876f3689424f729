"""Requests whose prefill has begun and not ended, watched so that one that is aborted leaves nothing behind."""

from __future__ import annotations

import weakref

from hscapture.sglang.batch import Request, ended


class Unfinished:
    """SGLang tells nobody when it ends a request between two chunks; the request itself shows it, or is gone."""

    def __init__(self) -> None:
        self._requests: dict[str, weakref.ref[Request]] = {}

    def watch(self, request: Request) -> None:
        self._requests[request.rid] = weakref.ref(request)

    def forget(self, rid: str) -> None:
        self._requests.pop(rid, None)

    def lost(self) -> list[str]:
        """The rids that will never finish their prefill; they are watched no more."""
        rids = [rid for rid, reference in self._requests.items() if (r := reference()) is None or ended(r)]
        for rid in rids:
            del self._requests[rid]
        return rids

    def begun(self) -> list[str]:
        """The rids that are watched."""
        return list(self._requests)

    def __len__(self) -> int:
        return len(self._requests)
