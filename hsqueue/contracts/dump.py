"""The dump contract: what the capture plugin leaves for the worker, one directory a request.

``<dump dir>/req_<rid>/hidden.safetensors`` appears by one rename, complete. S tokens, H hidden size, A
auxiliary layers, all states in the model's dtype:

========================== ============ ==========================================================
``input_ids``              int64 [S]    cloned in the forward pass, sliced with the rows' own offsets
``aux_hidden_states``      [S, A*H]     inputs of the auxiliary layers, side by side in ascending order
``last_hidden_state``      [S, H]       after the final norm (norm ``post`` and ``both``)
``last_hidden_state_prenorm`` [S, H]    before the final norm (norm ``pre`` and ``both``)
========================== ============ ==========================================================

The tensors lie in the file in this order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields

from hsqueue.contracts import CONTRACT_VERSION
from hsqueue.contracts.errors import DumpMalformed

DUMP_FILE = "hidden.safetensors"
INPUT_IDS = "input_ids"
AUX = "aux_hidden_states"
LAST = "last_hidden_state"
LAST_PRENORM = "last_hidden_state_prenorm"

SAFETENSORS_DTYPE: Mapping[str, str] = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}


def expected_tensors(
    tokens: int, layers: int, hidden_size: int, norm: str, dtype: str
) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
    """``(name, safetensors dtype, shape)`` of every tensor of a dump of `tokens` rows, in file order."""
    code = SAFETENSORS_DTYPE[dtype]
    found: list[tuple[str, str, tuple[int, ...]]] = [
        (INPUT_IDS, "I64", (tokens,)),
        (AUX, code, (tokens, layers * hidden_size)),
    ]
    if norm in ("post", "both"):
        found.append((LAST, code, (tokens, hidden_size)))
    if norm in ("pre", "both"):
        found.append((LAST_PRENORM, code, (tokens, hidden_size)))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class DumpMeta:
    """A dump's safetensors metadata, where every value is a string.

    num_tokens: rows. prefix_len: tokens of the prompt taken from the prefix cache, so without rows.
    chunks: rows of each prefill chunk, in order. layers: inputs of layers. layers_asked, layers_held: as in
    the engine's card. nonfinite: names of the tensors that hold NaN or infinity, checked on the device.
    engine: the card's instance.
    """

    rid: str
    num_tokens: int
    prefix_len: int
    chunks: tuple[int, ...]
    layers: tuple[int, ...]
    layers_asked: tuple[int, ...]
    layers_held: tuple[int, ...]
    norm: str
    dtype: str
    nonfinite: tuple[str, ...]
    model: str
    server: str
    engine: str
    contract: int = CONTRACT_VERSION

    def to_metadata(self) -> dict[str, str]:
        found = {}
        for field in fields(self):
            value = getattr(self, field.name)
            found[field.name] = value if isinstance(value, str) else json.dumps(value)
        return found

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str]) -> DumpMeta:
        """Raises DumpMalformed where a key is missing, of the wrong type, or of another contract version."""
        version = metadata.get("contract")
        if version != str(CONTRACT_VERSION):
            raise DumpMalformed("dump of another contract version", expected=CONTRACT_VERSION, found=version)
        try:
            return cls(
                rid=metadata["rid"],
                num_tokens=_count(metadata["num_tokens"]),
                prefix_len=_count(metadata["prefix_len"]),
                chunks=_counts(metadata["chunks"]),
                layers=_counts(metadata["layers"]),
                layers_asked=_counts(metadata["layers_asked"]),
                layers_held=_counts(metadata["layers_held"]),
                norm=metadata["norm"],
                dtype=metadata["dtype"],
                nonfinite=_names(metadata["nonfinite"]),
                model=metadata["model"],
                server=metadata["server"],
                engine=metadata["engine"],
            )
        except KeyError as error:
            raise DumpMalformed(f"dump metadata lacks {error}") from None
        except (ValueError, RecursionError) as error:
            raise DumpMalformed(f"dump metadata is damaged ({str(error)[:100]})") from None


def _count(text: str) -> int:
    value = json.loads(text)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{text[:40]!r} is not a count")
    return value


def _counts(text: str) -> tuple[int, ...]:
    values = json.loads(text)
    if not isinstance(values, list) or not all(
        isinstance(v, int) and not isinstance(v, bool) and v >= 0 for v in values
    ):
        raise ValueError(f"{text[:40]!r} is not a list of counts")
    return tuple(values)


def _names(text: str) -> tuple[str, ...]:
    values = json.loads(text)
    if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
        raise ValueError(f"{text[:40]!r} is not a list of names")
    return tuple(values)
