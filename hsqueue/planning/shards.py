"""One shard of the plan: a Parquet file of at most ``shard_size`` samples.

========== =================== =========================================================
index      int64               dense over the whole run, ascending
id         string              the user's
input_ids  list<int32>         [S]
loss_mask  list<bool>          [S]
file, line string, int64       where the sample came from; the worker does not read them
========== =================== =========================================================
"""

from __future__ import annotations

import array
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hsqueue.contracts.errors import RunDamaged
from hsqueue.contracts.sample import Sample
from hsqueue.store.files import unreadable

SCHEMA = pa.schema(
    [
        pa.field("index", pa.int64(), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("input_ids", pa.list_(pa.field("item", pa.int32(), nullable=False)), nullable=False),
        pa.field("loss_mask", pa.list_(pa.field("item", pa.bool_(), nullable=False)), nullable=False),
        pa.field("file", pa.string(), nullable=False),
        pa.field("line", pa.int64(), nullable=False),
    ]
)
COLUMNS = ["index", "id", "input_ids", "loss_mask"]
"""Those that ``read_shard`` reads."""
_READ_SCHEMA = pa.schema([SCHEMA.field(name) for name in COLUMNS])


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a sample came from. file: as the user named it. line: from 1, 0 where it is unknown."""

    file: str
    line: int


UNKNOWN = Origin("", 0)


def write_shard(path: Path, samples: Sequence[Sample], origins: Sequence[Origin] = ()) -> None:
    """Writes `samples` to the new file `path`, whose directory exists, and forces it to disk. Raises OSError.

    origins: one a sample, or none at all.
    """
    table = _to_table(samples, origins or [UNKNOWN] * len(samples))
    with path.open("xb") as file:
        pq.write_table(
            table,
            file,
            compression="zstd",
            use_dictionary=["file"],
            write_statistics=False,
            write_page_checksum=True,
        )
        file.flush()
        os.fsync(file.fileno())


def read_shard(path: Path, expected: range | None = None) -> list[Sample]:
    """The samples of one shard in order.

    expected: the indices that the shard must hold, ``RunInfo.shard_range``. Raises RunDamaged where the file
    is missing or damaged, or holds other or not consecutive indices; VolumeUnusable where the system fails to read it.
    """
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            samples = _from_table(file.read(columns=COLUMNS, use_threads=False))
    except FileNotFoundError:
        raise _damaged(path, "is missing") from None
    except (OSError, pa.ArrowException, ValueError) as error:
        # Bytes that Arrow cannot parse are an OSError as well, but one without a number of the system's.
        if isinstance(error, OSError) and error.errno is not None:
            raise unreadable(error, path) from error
        raise _damaged(path, f"cannot be read ({' '.join(str(error).split())[:200]})") from None
    found = [sample.index for sample in samples]
    wanted = expected if expected is not None else range(found[0], found[0] + len(found)) if found else range(1)
    if found != list(wanted):
        raise RunDamaged(
            f"{path} holds other samples than the run says",
            expected=f"indices {wanted.start} to {wanted.stop - 1}",
            found=f"{found[0]} to {found[-1]}, {len(found)} of them" if found else "none",
            do="Restore the file from a backup, or plan again into another directory.",
        )
    return samples


def _damaged(path: Path, problem: str) -> RunDamaged:
    return RunDamaged(f"{path} {problem}", do="Restore the file from a backup, or plan again into another directory.")


def _to_table(samples: Sequence[Sample], origins: Sequence[Origin]) -> pa.Table:
    ids = b"".join(sample.input_ids.tobytes() for sample in samples)
    mask = b"".join(sample.loss_mask for sample in samples)
    offsets = pa.array(accumulate((sample.tokens for sample in samples), initial=0), pa.int32())
    columns = [
        pa.array([sample.index for sample in samples], pa.int64()),
        pa.array([sample.id for sample in samples], pa.string()),
        _lists(offsets, _values(ids, pa.int64()), SCHEMA.field("input_ids").type),
        _lists(offsets, _values(mask, pa.uint8()), SCHEMA.field("loss_mask").type),
        pa.array([origin.file for origin in origins], pa.string()),
        pa.array([origin.line for origin in origins], pa.int64()),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _values(data: bytes, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(data) * 8 // kind.bit_width, [None, pa.py_buffer(data)])


def _lists(offsets: pa.Array, values: pa.Array, kind: pa.DataType) -> pa.Array:
    return pa.ListArray.from_arrays(offsets, pc.cast(values, kind.value_type), type=kind)


def _from_table(table: pa.Table) -> list[Sample]:
    if not table.schema.equals(_READ_SCHEMA) or any(column.null_count for column in table.columns):
        raise ValueError("its columns are not those of a shard")
    ids, bounds = _flat(table["input_ids"], pa.int64())
    mask, mask_bounds = _flat(table["loss_mask"], pa.uint8())
    if bounds != mask_bounds:
        raise ValueError("input_ids and loss_mask differ in length")
    samples = []
    rows = zip(table["index"].to_pylist(), table["id"].to_pylist(), pairwise(bounds), strict=True)
    for index, id, (begin, end) in rows:
        tokens = array.array("q")
        tokens.frombytes(ids[begin * tokens.itemsize : end * tokens.itemsize])
        samples.append(Sample(index, id, tokens, bytes(mask[begin:end])))
    return samples


def _flat(column: pa.ChunkedArray, kind: pa.DataType) -> tuple[memoryview, list[int]]:
    """Bytes of all values of a column of lists, as `kind`, and the n + 1 bounds of its n lists, in values."""
    lists = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    values = pc.cast(lists.flatten(), kind)
    if values.null_count:
        raise ValueError("a value is null")
    width = kind.bit_width // 8
    data = memoryview(values.buffers()[1] or b"")
    bounds = [0, *accumulate(pc.list_value_length(lists).to_pylist())]
    return data[values.offset * width : (values.offset + len(values)) * width], bounds
