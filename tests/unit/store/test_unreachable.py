"""A network file system whose server does not answer: every look at it fails, and nothing is missing or damaged."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable
from typing import Any

import pyarrow.parquet as pq
import pytest

from hsqueue.contracts.errors import VolumeUnusable
from hsqueue.planning.commit import load_run
from hsqueue.planning.shards import read_shard
from hsqueue.store.files import make_directory, require_inside, require_run
from hsqueue.store.manifest import read_manifest
from hsqueue.store.survey import look_afresh, survey_shard
from hsqueue.store.verify import verify
from tests.support.volume import Volume

LOOKS: dict[str, Callable[[Volume], object]] = {
    "load_run": lambda v: load_run(v.layout.root),
    "require_run": lambda v: require_run(v.layout.run_json),
    "require_inside": lambda v: require_inside(v.layout.root, v.layout.samples),
    "make_directory": lambda v: make_directory(v.layout.shard_directory(0)),
    "read_manifest": lambda v: read_manifest(v.layout.manifest(0)),
    "read_shard": lambda v: read_shard(v.layout.plan_shard(0)),
    "look_afresh": lambda v: look_afresh(v.layout, [0]),
    "survey_shard": lambda v: survey_shard(v.layout, v.info, 0),
    "verify": lambda v: verify(v.layout, v.info, deep=False),
}


@pytest.mark.parametrize("look", LOOKS)
def test_every_look_says_that_the_volume_cannot_be_read(
    look: str, volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume.finish_shard(0)

    def fails(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))

    with monkeypatch.context() as patch:
        for module, name in ((os, "stat"), (os, "lstat"), (os, "scandir"), (io, "open"), (pq, "ParquetFile")):
            patch.setattr(module, name, fails)
        with pytest.raises(VolumeUnusable, match=r"cannot be read .*not connected"):
            LOOKS[look](volume)
