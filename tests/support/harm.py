"""What disks, people and attackers do to a finished run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import xxhash

from hsqueue.contracts.fingerprint import RunInfo
from hsqueue.contracts.sample import Ending, GivenUp, Published
from hsqueue.contracts.tensorfile import layout
from hsqueue.planning.plan import load_run
from hsqueue.store.layout import RunLayout
from hsqueue.store.manifest import Manifest, read_manifest
from hsqueue.store.samplefile import CHECKSUM_DIGITS, read_sample_header, sample_header


@dataclass(frozen=True, slots=True)
class Victim:
    """A finished run that is to be harmed."""

    layout: RunLayout
    info: RunInfo

    @classmethod
    def at(cls, root: Path) -> Victim:
        return cls(RunLayout(root), load_run(root))

    def shard(self, index: int) -> int:
        return index // self.info.fingerprint.shard_size

    def path(self, index: int) -> Path:
        return self.layout.sample(self.shard(index), index)

    def flip(self, path: Path, place: int, bit: int = 0) -> None:
        data = bytearray(path.read_bytes())
        data[place] ^= 1 << bit
        path.write_bytes(data)

    def tensor(self, index: int, name: str) -> slice:
        """Where the bytes of a tensor lie in the sample's file."""
        header = read_sample_header(self.path(index))
        spec = header.file.tensors[name]
        return slice(header.file.size + spec.begin, header.file.size + spec.end)

    def copy_tensors(self, source: int, target: int, *names: str) -> None:
        """The rows of another sample of the same length in place of the sample's own, and all sums made right."""
        data, other = bytearray(self.path(target).read_bytes()), self.path(source).read_bytes()
        for name in names:
            data[self.tensor(target, name)] = other[self.tensor(source, name)]
        self.path(target).write_bytes(data)
        self.reseal(target)

    def reseal(self, index: int, **metadata: str) -> None:
        """Makes checksum, digest and manifest agree with whatever the sample's file now holds, as an attacker would.

        metadata: of the file, to be replaced.
        """
        path = self.path(index)
        header = read_sample_header(path)
        payload = path.read_bytes()[header.file.size :]
        specs = layout((t.name, t.dtype, t.shape) for t in sorted(header.file.tensors.values(), key=lambda t: t.begin))
        checksum = xxhash.xxh3_128_hexdigest(payload)
        assert len(checksum) == CHECKSUM_DIGITS
        path.write_bytes(sample_header(specs, {**header.file.metadata, **metadata, "checksum": checksum}) + payload)
        self.list_again(index, lambda _: read_sample_header(path).published)

    def list_again(self, index: int, change: Callable[[Published], Published | GivenUp | None]) -> None:
        """Writes the manifest anew, well sealed, with another line for the sample, or none."""
        manifest = self.manifest(index)
        done = [change(d) if d.index == index else d for d in manifest.done]
        given_up = [*manifest.given_up, *(d for d in done if isinstance(d, GivenUp))]
        self.write(replace(
            manifest, done=tuple(d for d in done if isinstance(d, Published)), given_up=tuple(given_up)
        ), index)  # fmt: skip

    def manifest(self, index: int) -> Manifest:
        found = read_manifest(self.layout.manifest(self.shard(index)))
        assert found is not None
        return found

    def write(self, manifest: Manifest, index: int) -> None:
        self.layout.manifest(self.shard(index)).write_bytes(manifest.to_json())


# --- each takes a victim of samples 0 to 15 in shards of 8, of which all even ones have the same length ----------


def flipped_bit_in_the_payload(v: Victim) -> None:
    v.flip(v.path(3), v.tensor(3, "aux_hidden_states").start + 100, 6)


def flipped_bit_in_the_header(v: Victim) -> None:
    v.flip(v.path(3), v.path(3).read_bytes().index(b'"server"') + 12)


def flipped_bit_in_a_manifest(v: Victim) -> None:
    path = v.layout.manifest(1)
    v.flip(path, path.read_bytes().index(b'"worker":"') + 11)


def zeros_at_the_end(v: Victim) -> None:
    data = v.path(3).read_bytes()
    v.path(3).write_bytes(data[:-4096] + bytes(4096))


def zeros_from_the_start(v: Victim) -> None:
    v.path(3).write_bytes(bytes(v.path(3).stat().st_size))


def truncated(v: Victim) -> None:
    v.path(3).write_bytes(v.path(3).read_bytes()[:-1])


def grown(v: Victim) -> None:
    v.path(3).write_bytes(v.path(3).read_bytes() + b"\0")


def emptied(v: Victim) -> None:
    v.path(3).write_bytes(b"")


def two_files_swapped(v: Victim) -> None:
    aside = v.layout.root / "aside"
    v.path(2).rename(aside)
    v.path(12).rename(v.path(2))
    aside.rename(v.path(12))


def file_under_another_index(v: Victim) -> None:
    v.path(2).replace(v.path(4))


def file_of_another_run(v: Victim) -> None:
    v.reseal(3, run="0123456789")


def file_of_other_layers(v: Victim) -> None:
    v.reseal(3, layers="1,4,5")


def other_prompt_with_its_token_ids(v: Victim) -> None:
    v.copy_tensors(2, 4, "input_ids", "aux_hidden_states", "last_hidden_state", "loss_mask")


def other_loss_mask(v: Victim) -> None:
    data = bytearray(v.path(3).read_bytes())
    data[-1] ^= 1
    v.path(3).write_bytes(data)
    v.reseal(3)


def rows_of_another_prompt(v: Victim) -> None:
    v.copy_tensors(2, 4, "aux_hidden_states", "last_hidden_state")


def rows_shifted_by_one(v: Victim) -> None:
    data, place = bytearray(v.path(3).read_bytes()), v.tensor(3, "last_hidden_state")
    row = v.info.fingerprint.hidden_size * 4
    data[place] = data[place][row:] + data[place][:row]
    v.path(3).write_bytes(data)
    v.reseal(3)


def missing_file(v: Victim) -> None:
    v.path(3).unlink()


def missing_shard(v: Victim) -> None:
    shutil.rmtree(v.layout.shard_directory(1))


def missing_manifest(v: Victim) -> None:
    v.layout.manifest(1).unlink()


def extra_file(v: Victim) -> None:
    v.layout.shard_directory(0).joinpath("000000000099.safetensors").write_bytes(v.path(3).read_bytes())


def extra_shard(v: Victim) -> None:
    shutil.copytree(v.layout.shard_directory(0), v.layout.shard_directory(7))


def extra_manifest(v: Victim) -> None:
    v.layout.manifest(7).write_bytes(v.layout.manifest(0).read_bytes())


def link_in_place_of_a_file(v: Victim) -> None:
    elsewhere = v.layout.root.parent / "elsewhere"
    shutil.move(v.path(3), elsewhere)
    v.path(3).symlink_to(elsewhere)


def link_in_place_of_a_shard(v: Victim) -> None:
    elsewhere = v.layout.root.parent / "elsewhere-shard"
    shutil.rmtree(elsewhere, ignore_errors=True)
    shutil.move(v.layout.shard_directory(1), elsewhere)
    v.layout.shard_directory(1).symlink_to(elsewhere)


def manifest_with_another_size(v: Victim) -> None:
    v.list_again(3, lambda d: replace(d, bytes=d.bytes + 1))


def manifest_with_another_count(v: Victim) -> None:
    v.list_again(3, lambda d: replace(d, tokens=d.tokens - 1))


def manifest_with_another_digest(v: Victim) -> None:
    v.list_again(3, lambda d: replace(d, digest="0" * 32))


def manifest_that_says_skipped(v: Victim) -> None:
    v.list_again(3, lambda d: GivenUp(d.index, Ending.SKIPPED, 1, "SampleTooLong", ""))


def manifest_that_gives_an_impossible_reason(v: Victim) -> None:
    v.path(3).unlink()
    v.list_again(3, lambda d: GivenUp(d.index, Ending.SKIPPED, 1, "DumpMissing", ""))


def manifest_that_passes_one_over(v: Victim) -> None:
    v.list_again(3, lambda d: None)


def manifest_of_another_shard(v: Victim) -> None:
    v.layout.manifest(0).write_bytes(v.layout.manifest(1).read_bytes())
