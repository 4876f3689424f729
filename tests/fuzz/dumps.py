"""Dumps: read as the worker reads them, accepted only if all that they say is what was asked for."""

from __future__ import annotations

import json
import os
import random
import struct
from pathlib import Path
from typing import Any

from hsqueue.contracts.dump import DUMP_FILE
from hsqueue.contracts.rid import RequestId
from hsworker.dumps import read_dump
from hsworker.matching import check_dump
from tests.fuzz.values import changed, deep, odd
from tests.support.mutate import mutated
from tests.support.volume import TARGET, dump_file_bytes, make_sample

RID = RequestId("r1", 3, 1 << 32, 0)
SAMPLE = make_sample(3, 6)
GENUINE = dump_file_bytes(str(RID), SAMPLE)
OTHERS = tuple(
    dump_file_bytes(str(rid), sample)
    for rid, sample in (
        (RequestId("r1", 4, 1 << 32, 0), make_sample(4, 6)), (RequestId("r1", 3, 1 << 32, 1), SAMPLE),
        (RID, make_sample(9, 6)), (RID, make_sample(3, 7)), (RequestId("r2", 3, 1 << 32, 0), SAMPLE),
    )
)  # fmt: skip
"""Whole dumps of other requests, other prompts of the same length, other lengths."""
WIDTHS = {
    "input_ids": ("I64", 8, [6]),
    "aux_hidden_states": ("BF16", 2, [6, 24]),
    "last_hidden_state": ("BF16", 2, [6, 8]),
}
BOMB = 1 << 41


class Dumps:
    """place: a directory in memory."""

    def __init__(self, place: Path) -> None:
        self.path = place / RID.directory / DUMP_FILE
        self.path.parent.mkdir()

    def one(self, dice: random.Random) -> bool:
        """Whether the worker accepts what `dice` makes. Raises whatever the worker may not raise."""
        data, length = make(dice)
        self.path.unlink(missing_ok=True)
        self.path.write_bytes(data)
        if length is not None:
            # A hole, so that a file as long as a bomb claims costs nothing.
            os.truncate(self.path, length)
        dump = read_dump(self.path, SAMPLE.tokens)
        check_dump(dump.meta, dump.file, dump.ids, str(RID), SAMPLE, TARGET)
        problem = wrong(data if length is None else data + bytes(max(0, length - len(data))))
        assert problem is None, f"accepted, though {problem}: {data[:2000]!r}"
        return True


def make(dice: random.Random) -> tuple[bytes, int | None]:
    """A file's beginning, and its length where that is another."""
    how = dice.randrange(100)
    if how < 10:
        return dice.randbytes(dice.randrange(400)), None
    if how < 15:
        return with_header(deep(dice).encode()), None
    if how < 55:
        source = GENUINE if dice.random() < 0.8 else dice.choice(OTHERS)
        data, _ = mutated(source, dice)
        return data if dice.random() < 0.7 else mutated(data, dice)[0], None
    if how < 60:
        return dice.choice(OTHERS), None
    if how < 62:
        return GENUINE, None
    if how < 70:
        return bomb(dice)
    table, payload = parts(dice.choice((GENUINE, *OTHERS)))
    table = changed_table(table, dice)
    return with_header(json.dumps(table).encode()) + payload, None


def changed_table(table: Any, dice: random.Random) -> Any:
    """The header with one value changed, most often one of its metadata, where lies are finest."""
    if dice.random() < 0.5:
        metadata = dict(table["__metadata__"])
        name = dice.choice(sorted(metadata))
        value = metadata[name]
        metadata[name] = dice.choice((
            str(odd(dice)), value + " ", " " + value, value.upper(), value[:-1], value.replace("3", "4"),
            json.dumps(odd(dice)), '["last_hidden_state"]', "1", "12", "[3,3]", "[2,4,5,6]",
            '"' + value + '"', value + "0",
        ))  # fmt: skip
        if dice.random() < 0.2:
            del metadata[name]
        return {**table, "__metadata__": metadata}
    return changed(table, dice)


def bomb(dice: random.Random) -> tuple[bytes, int | None]:
    """Lengths and shapes far beyond anything, with a file to match where there is a file system for it."""
    if dice.random() < 0.3:
        return struct.pack("<Q", dice.choice((1 << 20, (1 << 20) + 1, 1 << 31, 1 << 40, (1 << 64) - 1))) + b"{", None
    table, _ = parts(GENUINE)
    tokens = dice.choice((1 << 20, 1 << 33, 1 << 60))
    position = 0
    for name, (_, size, shape) in WIDTHS.items():
        shape = [tokens, *shape[1:]]
        length = size
        for side in shape:
            length *= side
        table[name] |= {"shape": shape, "data_offsets": [position, position + length]}
        position += length
    if dice.random() < 0.5:
        table["__metadata__"]["num_tokens"] = str(tokens)
        table["__metadata__"]["chunks"] = f"[{tokens}]"
    head = with_header(json.dumps(table).encode())
    return head, len(head) + position if position < BOMB else None


def with_header(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def parts(data: bytes) -> tuple[Any, bytes]:
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def wrong(data: bytes) -> str | None:
    """What is not as asked for, found without hsqueue's own code; None where everything is."""
    length = struct.unpack("<Q", data[:8])[0]
    table = json.loads(data[8 : 8 + length])
    said = table.pop("__metadata__")
    for name, value in (
        ("contract", 1), ("num_tokens", 6), ("prefix_len", 0), ("layers", [2, 4, 5]), ("nonfinite", []),
    ):  # fmt: skip
        if json.loads(said[name]) != value:
            return f"{name} is {said[name]}"
    if (said["rid"], said["norm"], said["dtype"]) != ("hsq.r1.3.4294967296.0", "post", "bfloat16"):
        return f"rid, norm or dtype is {said}"
    if sum(json.loads(said["chunks"])) != 6:
        return f"chunks are {said['chunks']}"
    if sorted(table) != sorted(WIDTHS):
        return f"its tensors are {sorted(table)}"
    payload, used = data[8 + length :], 0
    for name, (dtype, size, shape) in WIDTHS.items():
        begin, end = table[name]["data_offsets"]
        rows = size
        for side in shape:
            rows *= side
        if (table[name]["dtype"], table[name]["shape"], end - begin) != (dtype, shape, rows):
            return f"{name} is {table[name]}"
        used += rows
    if used != len(payload):
        return f"{len(payload)} bytes follow where {used} are described"
    begin, end = table["input_ids"]["data_offsets"]
    if list(struct.unpack("<6q", payload[begin:end])) != list(SAMPLE.input_ids):
        return "its token ids are another prompt's"
    return None
