"""``hsqueue verify`` on a finished run that was harmed, its ``--repair``, and the run whole again."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hsqueue.cli.main import app
from hsqueue.cli.options import default_model
from hsqueue.ledger.ledger import Ledger
from hsqueue.monitoring.snapshot import from_ledger
from tests.support import harm
from tests.support.cli import hsqueue, start
from tests.support.engine import Engine, engine
from tests.support.harm import Victim
from tests.support.prompts import Reference, token_prompts, wrong_samples
from tests.support.redis import redis_server
from tests.support.waiting import await_true

COUNT = 16
LENGTHS = [40 if k % 2 == 0 else 20 + k for k in range(COUNT)]
ALL = tuple(range(8, 16))
"""Samples of the second shard."""

DEEP = ("--deep",)
AGAINST = ("--deep", "--against", str(default_model()), "--count", "0")


@dataclass(frozen=True, slots=True)
class Row:
    """harm: what is done to the run. names: what verify names. words: in its output. again: samples that are asked
    for again. by: options of verify without which it is not found.
    """

    harm: Callable[[Victim], None]
    names: tuple[str, ...]
    words: str
    again: tuple[int, ...]
    by: tuple[str, ...] = ()


ROWS = (
    Row(harm.flipped_bit_in_the_payload, ("sample 3",), "its bytes have changed", (3,), DEEP),
    Row(harm.flipped_bit_in_the_header, ("sample 3",), "its digest is", (3,)),
    Row(harm.flipped_bit_in_a_manifest, ("shard 1",), "its bytes are not those that were written", ()),
    Row(harm.zeros_at_the_end, ("sample 3",), "its loss mask is not the plan's", (3,), DEEP),
    Row(harm.zeros_from_the_start, ("sample 3",), "impossible header length", (3,)),
    Row(harm.truncated, ("sample 3",), "of the wrong length", (3,)),
    Row(harm.grown, ("sample 3",), "of the wrong length", (3,)),
    Row(harm.emptied, ("sample 3",), "too short", (3,)),
    Row(harm.two_files_swapped, ("sample 2", "sample 12"), "holds sample 12 of run", (2, 12)),
    Row(harm.file_under_another_index, ("sample 2", "sample 4"), "holds sample 2 of run", (2, 4)),
    Row(harm.file_of_another_run, ("sample 3",), "of run 0123456789", (3,)),
    Row(harm.file_of_other_layers, ("sample 3",), "says layers '1,4,5'", (3,)),
    Row(harm.other_prompt_with_its_token_ids, ("sample 4",), "its token ids are not the plan's", (4,), DEEP),
    Row(harm.other_loss_mask, ("sample 3",), "its loss mask is not the plan's", (3,), DEEP),
    Row(harm.rows_of_another_prompt, ("sample 4",), "its states differ from the model's", (4,), AGAINST),
    Row(harm.rows_shifted_by_one, ("sample 3",), "its states differ from the model's", (3,), AGAINST),
    Row(harm.missing_file, ("sample 3",), "its file is missing", (3,)),
    Row(harm.missing_shard, tuple(f"sample {k}" for k in ALL), "its file is missing", ALL),
    Row(harm.extra_file, ("shard 0",), "belongs to no sample of this shard", ()),
    Row(harm.extra_shard, ("the run",), "belongs to no shard of this run", ()),
    Row(harm.extra_manifest, ("the run",), "belongs to no shard of this run", ()),
    Row(harm.link_in_place_of_a_file, ("sample 3",), "is no file", (3,)),
    Row(harm.link_in_place_of_a_shard, ("shard 1", *(f"sample {k}" for k in ALL)), "a link", ALL),
    Row(harm.manifest_with_another_size, ("sample 3",), "another length", ()),
    Row(harm.manifest_with_another_count, ("sample 3",), "another length", ()),
    Row(harm.manifest_with_another_digest, ("sample 3",), "its digest is", (3,)),
    Row(harm.manifest_that_says_skipped, ("sample 3",), "a whole file stands there", ()),
    Row(harm.manifest_that_gives_an_impossible_reason, ("shard 0",), "which never ends one so", (3,)),
    Row(harm.manifest_that_passes_one_over, ("shard 0",), "lists 7 samples", ()),
    Row(harm.manifest_of_another_shard, ("shard 0",), "is of run", ()),
)


@dataclass(slots=True)
class Finished:
    """A run whose queue, engine and worker still stand."""

    victim: Victim
    engine: Engine
    ledger: Ledger
    env: dict[str, str]
    seen: int = 0

    @property
    def root(self) -> Path:
        return self.victim.layout.root

    def complete(self) -> None:
        """Enqueues what is left and waits until every shard has ended."""
        status, text = self.call("enqueue")
        assert status == 0, text
        await_true(self._ended, "the run does not complete")

    def _ended(self) -> bool:
        snapshot = from_ledger(self.ledger, self.victim.info)
        return snapshot.complete and snapshot.shards_ended == snapshot.shards

    def asked(self) -> list[int]:
        """Indices that the engine was asked for since the last call."""
        rids = [rid for rid, _ in self.engine.asked()]
        new, self.seen = rids[self.seen :], len(rids)
        return sorted(int(rid.split(".")[2]) for rid in new if rid.startswith(f"hsq.{self.victim.info.run}."))

    def verify(self, *options: str) -> tuple[int, str]:
        """Exit status and what was printed."""
        return self.call("verify", *options)

    def call(self, command: str, *options: str) -> tuple[int, str]:
        """Within this process, for a process a call would take minutes in all."""
        result = CliRunner().invoke(app, [command, str(self.root), *options], env=self.env)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.exit_code, " ".join(result.output.split())


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    place = tmp_path_factory.mktemp("finds")
    root = place / "run"
    prompts = token_prompts(place / "prompts.jsonl", LENGTHS)
    with redis_server(place / "redis") as redis, engine(place) as one:
        env = {"HSQ_REDIS_URL": redis.url}
        source = ("--engine", one.url, "--dump-dir", str(one.dump_dir))
        planned = hsqueue("plan", prompts, "--out", root, "--shard-size", "8", *source, env=env)
        assert planned.status == 0, planned.text
        worker = start("worker", *source, "--name", "gpu0", log=place / "worker.log", env=env)
        try:
            victim = Victim.at(root)
            run = Finished(victim, one, Ledger(redis.client(), redis.url, victim.info.run), env)
            run.complete()
            assert run.asked() == list(range(COUNT))
            yield run
        finally:
            end(worker)


def end(worker: subprocess.Popen[bytes]) -> None:
    worker.terminate()
    worker.wait(60)


def test_a_finished_run_is_clean(finished: Finished) -> None:
    result = hsqueue("verify", finished.root, *AGAINST, env=finished.env)
    assert result.status == 0, result.text


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.harm.__name__)
def test_what_was_done_to_a_run_is_found_and_exactly_that_is_asked_for_again(finished: Finished, row: Row) -> None:
    row.harm(finished.victim)
    if row.by == AGAINST:
        assert finished.verify(*DEEP)[0] == 0, "only the model can tell"
    status, text = finished.verify(*(row.by or DEEP))
    assert status == 1, text
    assert row.words in text
    assert sorted(set(re.findall(r"(sample \d+|shard \d+|the run): ", text))) == sorted(row.names)
    status, text = finished.verify(*row.by, "--repair")
    assert status == 3, text
    finished.complete()
    assert finished.asked() == list(row.again)
    assert finished.verify(*(row.by or DEEP))[0] == 0


def test_a_missing_manifest_is_a_shard_that_has_not_ended_and_is_written_again(finished: Finished) -> None:
    harm.missing_manifest(finished.victim)
    status, text = finished.verify(*DEEP)
    assert (status, "1 shard without a manifest" in text) == (3, True), text
    finished.complete()
    assert finished.asked() == []
    assert finished.verify(*DEEP)[0] == 0


def test_after_all_that_every_file_holds_its_own_states(finished: Finished) -> None:
    assert wrong_samples(finished.root, Reference()) == []
