"""What a run has still to write counts against the room on its volume; what is done does not."""

from __future__ import annotations

from pathlib import Path

from hsqueue.cli.access import open_run
from hsqueue.cli.doctor import left
from hsqueue.doctor.volume import check_free
from hsqueue.settings import Settings
from tests.support.volume import make_volume


def test_without_a_ledger_the_files_say_what_is_left(tmp_path: Path) -> None:
    volume = make_volume(tmp_path / "run", (5, 9, 5, 3), 2)
    opened, each = open_run(volume.layout.root), volume.info.fingerprint.target.bytes_per_token
    assert left(opened, Settings()) == 22 * each
    volume.finish_shard(0)
    assert left(opened, Settings()) == 8 * each
    volume.finish_shard(1)
    assert left(opened, Settings()) == 0


def test_a_complete_run_needs_no_room() -> None:
    found = check_free(0, 0)
    assert (found.verdict, found.text) == ("ok", "0 B free, the run has nothing more to write")
