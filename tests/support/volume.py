"""Runs on a volume, made without a planner, an engine or a worker: a plan, dumps, published files, manifests."""

from __future__ import annotations

import array
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hsqueue.contracts.dump import DUMP_FILE, INPUT_IDS, DumpMeta, expected_tensors
from hsqueue.contracts.fingerprint import Fingerprint, RunInfo
from hsqueue.contracts.rid import RequestId
from hsqueue.contracts.sample import GivenUp, Published, Sample
from hsqueue.contracts.target import Target
from hsqueue.contracts.tensorfile import LENGTH_BYTES, build_header, header_length, layout, parse_header
from hsqueue.planning.shards import write_shard
from hsqueue.store.layout import RunLayout
from hsqueue.store.manifest import Manifest, make_manifest, write_manifest
from hsqueue.store.publish import Publication, publish

RUN = "r1"
TARGET = Target("models/tiny", "0123456789abcdef", (2, 4, 5), "post", "bfloat16", 8, 1000)


def make_sample(index: int, tokens: int) -> Sample:
    """A sample whose token ids and loss mask no other index has."""
    rng = random.Random(f"{index} {tokens}")
    ids = array.array("q", (rng.randrange(TARGET.vocab_size) for _ in range(tokens)))
    return Sample(index, f"id-{index}", ids, bytes(rng.randrange(2) for _ in range(tokens)))


def make_meta(rid: str, tokens: int, target: Target = TARGET) -> DumpMeta:
    return DumpMeta(
        rid=rid, num_tokens=tokens, prefix_len=0, chunks=(tokens,), layers=target.layers, layers_asked=target.layers,
        layers_held=target.layers, norm=target.norm, dtype=target.dtype, nonfinite=(), model=target.model,
        server="sglang 0.5", engine="e1",
    )  # fmt: skip


def dump_file_bytes(rid: str, sample: Sample, target: Target = TARGET, meta: DumpMeta | None = None) -> bytes:
    """A whole dump; the states are any bytes, other ones for every sample."""
    specs = layout(expected_tensors(sample.tokens, len(target.layers), target.hidden_size, target.norm, target.dtype))
    rng = random.Random(sample.index)
    payload = b"".join(
        sample.input_ids.tobytes() if s.name == INPUT_IDS else rng.randbytes(s.end - s.begin) for s in specs
    )
    return build_header(specs, (meta or make_meta(rid, sample.tokens, target)).to_metadata()) + payload


def write_dump(directory: Path, rid: RequestId, sample: Sample, target: Target = TARGET) -> Path:
    """``req_<rid>/hidden.safetensors`` as the capture plugin leaves it."""
    path = directory / rid.directory / DUMP_FILE
    path.parent.mkdir(parents=True)
    path.write_bytes(dump_file_bytes(str(rid), sample, target))
    return path


@dataclass(frozen=True, slots=True)
class Volume:
    """A run as it lies on the volume. samples: of its whole plan, by index."""

    layout: RunLayout
    info: RunInfo
    samples: tuple[Sample, ...]

    def shard_of(self, index: int) -> int:
        return index // self.info.fingerprint.shard_size

    def path(self, index: int) -> Path:
        return self.layout.sample(self.shard_of(index), index)

    def publication(self, index: int, **other: object) -> Publication:
        """What a worker that has taken the dump of sample `index` would publish. other: fields to replace."""
        sample = self.samples[index]
        rid = RequestId(self.info.run, index, 1 << 32, 0)
        source = self.layout.root.parent / "dumps" / rid.directory / DUMP_FILE
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_bytes(dump_file_bytes(str(rid), sample))
        data = source.read_bytes()
        job = Publication(
            source=source, dump=parse_header(data[: LENGTH_BYTES + header_length(data)]),
            meta=make_meta(str(rid), sample.tokens), run=self.info.run, index=index, id=sample.id,
            ids=sample.input_ids.tobytes(), loss_mask=sample.loss_mask, final=self.path(index), mark="m",
        )  # fmt: skip
        return replace(job, **other)  # type: ignore[arg-type]

    def publish(self, *indices: int) -> list[Published]:
        return [publish(self.publication(index), lambda: None) for index in indices]

    def write_manifest(
        self, shard: int, done: Iterable[Published], given_up: Iterable[GivenUp] = (), **other: object
    ) -> Manifest:
        """other: fields to replace, for a manifest that lies."""
        manifest = make_manifest(self.info.run, shard, 1 << 32, "gpu0@node", done, given_up)
        manifest = replace(manifest, **other)  # type: ignore[arg-type]
        assert write_manifest(self.layout, manifest)
        return manifest

    def finish_shard(self, shard: int, given_up: Sequence[GivenUp] = ()) -> Manifest:
        """Publishes what is not given up and writes the manifest."""
        ended = {given.index for given in given_up}
        done = self.publish(*(index for index in self.info.shard_range(shard) if index not in ended))
        return self.write_manifest(shard, done, given_up)


def make_fingerprint(shard_size: int) -> Fingerprint:
    return Fingerprint(
        model=TARGET.model, weights=TARGET.weights, layers=TARGET.layers, norm=TARGET.norm, dtype=TARGET.dtype,
        hidden_size=TARGET.hidden_size, vocab_size=TARGET.vocab_size, tokenizer="none", chat_template="none",
        dataset="d1", max_length=4096, min_loss_tokens=0, shard_size=shard_size,
    )  # fmt: skip


def make_info(lengths: Sequence[int], shard_size: int, run: str = RUN) -> RunInfo:
    """lengths: tokens of each sample."""
    shards = -(-len(lengths) // shard_size)
    return RunInfo(run, 1.5e9, len(lengths), shards, sum(lengths), make_fingerprint(shard_size))


def make_volume(root: Path, lengths: Sequence[int], shard_size: int, run: str = RUN) -> Volume:
    """A planned run without a published file. lengths: tokens of each sample."""
    layout_ = RunLayout(root)
    samples = tuple(make_sample(index, tokens) for index, tokens in enumerate(lengths))
    info = make_info(lengths, shard_size, run)
    for shard in range(info.shards):
        path = layout_.plan_shard(shard)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_shard(path, samples[shard * shard_size : (shard + 1) * shard_size])
    layout_.run_json.write_text(info.to_json())
    return Volume(layout_, info, samples)
