"""docs/format.md lists the very fields that are written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from hsqueue.contracts import CONTRACT_VERSION
from hsqueue.contracts.card import EngineCard
from hsqueue.contracts.complaint import Complaint
from hsqueue.contracts.dump import DumpMeta, expected_tensors
from hsqueue.contracts.fingerprint import Fingerprint, RunInfo
from hsqueue.contracts.layers import eagle3_layers
from hsqueue.contracts.meters import STAGES
from hsqueue.planning.report import Lengths, PlanReport, SourceReport
from hsqueue.planning.shards import SCHEMA
from hsqueue.store.layout import RunLayout
from hsqueue.store.manifest import Manifest, make_manifest
from hsqueue.store.samplefile import LOSS_MASK, sample_metadata
from hsworker.counter_dumps import NAMES
from tests.unit.docs.markdown import codes, first_codes, own, read, rows

PAGE = read("docs/format.md")
META = DumpMeta("hsq.a.1.2.0", 3, 0, (3,), (2, 4, 5), (), (), "both", "bfloat16", (), "m", "s", "e")


def names(record: Any) -> list[str]:
    return [field.name for field in fields(record)]


def same(written: Iterable[str], real: Iterable[str]) -> None:
    assert sorted(written) == sorted(real)


def test_version() -> None:
    assert f"at present **{CONTRACT_VERSION}**" in PAGE


def test_run_directory() -> None:
    tree = own(PAGE, "A run's directory")
    layout = RunLayout(Path("RUN"))
    paths = [
        layout.run_json, layout.plan_json, layout.rejected, layout.plan_shard(123), layout.sample(123, 31488),
        layout.manifest(123), layout.epochs / "000001", layout.logs, layout.redis, layout.quarantine,
    ]  # fmt: skip
    assert [path for path in paths if str(path) not in tree] == []


def test_run_json() -> None:
    same(first_codes(own(PAGE, "run.json")), [*names(RunInfo), *names(Fingerprint)])


def test_plan() -> None:
    text = own(PAGE, "The plan")
    assert first_codes(text) == SCHEMA.names
    assert {*names(PlanReport), *names(Lengths), *names(SourceReport)} <= set(codes(text))


def test_tensors() -> None:
    written = [row for row in rows(own(PAGE, "A published sample")) if len(row) == 4]
    expected = [name for name, _, _ in expected_tensors(3, 3, 8, "both", "bfloat16")]
    assert [codes(row[0])[0] for row in written] == [*expected, LOSS_MASK]
    for row in written:
        here = [n for n in ("post", "pre", "both") if n in row[3] or "always" in row[3]]
        name = codes(row[0])[0]
        there = [n for n in ("post", "pre", "both") if name in {t[0] for t in expected_tensors(3, 3, 8, n, "float32")}]
        assert name == LOSS_MASK or here == there, name


def test_metadata_of_a_sample() -> None:
    keys = [codes(row[0])[0] for row in rows(own(PAGE, "A published sample")) if len(row) == 2]
    assert keys == list(sample_metadata("a", 1, "id", META, "0" * 32))


def test_manifest() -> None:
    text = own(PAGE, "A shard's manifest")
    table = json.loads(make_manifest("a", 0, 1, "w", (), ()).to_json())
    same(first_codes(text), [*table, *(set(table["work"]) - {"lost"})])
    for name in (*STAGES, "lost"):
        assert f"`{name}`" in text, name
    columns = next(row[1] for row in rows(text) if row[0] == "`done`")
    assert codes(columns) == list(table["done"])
    example = re.search(r"```json\n(.*?)```", text, re.DOTALL)
    assert example
    assert Manifest.from_json(example[1].rstrip().encode(), "the example").problem("2422f88579", 0, range(3)) is None


def test_dump() -> None:
    same(first_codes(own(PAGE, "The dump contract")), names(DumpMeta))
    same(DumpMeta.from_metadata(META.to_metadata()).to_metadata(), names(DumpMeta))


def test_card() -> None:
    same(first_codes(own(PAGE, "The engine's card")), names(EngineCard))


def test_complaint() -> None:
    same(first_codes(own(PAGE, "The engine's last complaint")), names(Complaint))


def test_older_layout() -> None:
    written = {codes(row[0])[0]: codes(row[1]) for row in rows(own(PAGE, "The older layout"))}
    assert written == {name: list(aliases) for name, aliases in NAMES.items()}


def test_layers() -> None:
    """The page's formulas are those of the code, and "output of layer" is one less."""
    for depth in (8, 33, 61):
        assert eagle3_layers(depth) == (2, depth // 2, depth - 3)
        assert tuple(k - 1 for k in eagle3_layers(depth)) == (1, depth // 2 - 1, depth - 4)
