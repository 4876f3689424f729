"""Why the engine made no dump, ``$HSQ_DUMP_DIR/last-error.json``: its last complaint, for the worker to pass on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from hsqueue.contracts import fields

COMPLAINT_NAME = "last-error.json"


@dataclass(frozen=True, slots=True)
class Complaint:
    """rid: of the request that got no dump. time: seconds since the epoch. text: one line."""

    rid: str
    time: float
    text: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Complaint:
        """Raises ValueError where `text` is no complaint."""
        try:
            table = json.loads(text)
            return cls(fields.text(table, "rid"), fields.seconds(table, "time"), fields.text(table, "text"))
        except (KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"no complaint: {error!r:.80}") from None
