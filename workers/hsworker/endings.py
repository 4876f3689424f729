"""What came of a leased shard's samples, and how the ledger hears of it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from hsqueue.contracts.meters import LEDGER
from hsqueue.contracts.sample import GivenUp, Published
from hsqueue.ledger.ledger import Ledger
from hsqueue.ledger.records import Lease
from hsqueue.store.files import fsync_directory, volume_error
from hsqueue.store.layout import RunLayout
from hsworker.adoption import Adopted
from hsworker.times import Times


class Endings:
    """done, given_up: by index, as the ledger knows them. uncommitted: published, and the ledger does not know yet.
    committed_at: seconds of the monotonic clock. total: samples of the shard.
    """

    def __init__(self, layout: RunLayout, ledger: Ledger, lease: Lease, times: Times, total: int) -> None:
        self._layout, self._ledger, self._lease, self._times = layout, ledger, lease, times
        self.total = total
        self.done: dict[int, Published] = {}
        self.given_up: dict[int, GivenUp] = {}
        self.uncommitted: list[Published] = []
        self.committed_at = time.monotonic()

    def adopt(self, adopted: Adopted) -> None:
        self.done = {sample.index: sample for sample in adopted.recorded}
        self.uncommitted = list(adopted.unrecorded)
        self.given_up = adopted.given_up

    def is_open(self, index: int) -> bool:
        return index not in self.done and index not in self.given_up

    @property
    def count(self) -> int:
        return len(self.done) + len(self.given_up)

    @property
    def are_all(self) -> bool:
        """Every sample of the shard has an ending that the ledger knows."""
        return self.count == self.total

    @property
    def tokens(self) -> int:
        return sum(sample.tokens for sample in self.done.values())

    def new(self, given_up: Mapping[int, GivenUp]) -> list[GivenUp]:
        """Those that the ledger has not been told of."""
        return [given for index, given in given_up.items() if index not in self.given_up]

    def commit(self, given_up: Iterable[GivenUp]) -> None:
        """Tells the ledger what stands on the volume, after it would survive a power cut.

        Raises LeaseLost, RedisUnreachable, VolumeUnusable; then everything is still to be told.
        """
        given_up = list(given_up)
        if self.uncommitted or given_up:
            directory = self._layout.shard_directory(self._lease.shard)
            try:
                fsync_directory(directory)
            except OSError as error:
                raise volume_error(error, directory / "x") from error
            with self._times.spend(LEDGER):
                self._ledger.commit(self._lease, self.uncommitted, given_up)
            self.done |= {sample.index: sample for sample in self.uncommitted}
            self.uncommitted = []
        self.committed_at = time.monotonic()

    def take_up(self, given_up: Iterable[GivenUp]) -> None:
        """The ledger knows these now."""
        for given in given_up:
            self.given_up[given.index] = given
            self._times.count(**{str(given.ending): 1})
