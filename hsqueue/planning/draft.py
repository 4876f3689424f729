"""A plan while it is being written: samples come in one by one, shards and totals go out."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

import xxhash

from hsqueue.contracts.sample import Sample
from hsqueue.planning.digests import DigestSet
from hsqueue.planning.limits import Limits
from hsqueue.planning.pipeline import Tokenised
from hsqueue.planning.rejects import Reason, Reject
from hsqueue.planning.shards import Origin, write_shard
from hsqueue.store.layout import plan_shard_path


class Draft:
    """Admits samples, gives them their indices and writes full shards behind the caller's back.

    In memory are one shard that fills, one that is being written, and about 20 bytes for each id, whatever the
    number of samples. Any method raises the OSError of a shard that could not be written.
    """

    def __init__(self, directory: Path, limits: Limits, shard_size: int) -> None:
        self.samples = self.shards = self.tokens = self.supervised_tokens = self.unsupervised = 0
        self.lengths: Counter[int] = Counter()
        self.by_file: Counter[str] = Counter()
        self._directory, self._limits, self._shard_size = directory, limits, shard_size
        self._filling: list[Sample] = []
        self._origins: list[Origin] = []
        self._ids = DigestSet()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="plan-writer")
        self._writing: Future[None] | None = None

    def add(self, found: Tokenised) -> Reject | None:
        """Takes the sample, or says why not. Of those with one id, the first that keeps to the limits is taken."""
        reject = self._limits.breach(found.tokens)
        if reject is not None:
            return reject
        if not self._ids.add(xxhash.xxh3_128_digest(found.id.encode())):
            return Reject(Reason.DUPLICATE_ID, "an earlier record has this id")
        self._take(found)
        return None

    def finish(self) -> None:
        """Writes the last shard and waits until all are on disk."""
        if self._filling:
            self._write()
        self._wait()

    def __enter__(self) -> Draft:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.shutdown()

    def _take(self, found: Tokenised) -> None:
        sample = Sample(self.samples, found.id, found.tokens.input_ids, found.tokens.loss_mask)
        supervised = sample.loss_mask.count(1)
        self.samples += 1
        self.tokens += sample.tokens
        self.supervised_tokens += supervised
        self.unsupervised += not supervised
        self.lengths[sample.tokens] += 1
        self.by_file[found.file] += 1
        self._filling.append(sample)
        self._origins.append(Origin(found.file, found.line))
        if len(self._filling) == self._shard_size:
            self._write()

    def _write(self) -> None:
        path = plan_shard_path(self._directory, self.shards)
        path.parent.mkdir(exist_ok=True)
        self._wait()
        self._writing = self._writer.submit(write_shard, path, self._filling, self._origins)
        self.shards += 1
        self._filling, self._origins = [], []

    def _wait(self) -> None:
        if self._writing is not None:
            self._writing.result()
            self._writing = None
