"""A GlusterFS volume: one brick on the head, and on every node a client with caches of its own.

Started from files that describe both ends, so it needs no daemon of the system's and leaves nothing outside its
directory.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hsqueue.local.processes import die_with_parent
from tests.chaos.cluster.namespaces import HEAD
from tests.chaos.operations.processes import Find, main_of
from tests.support.tools import program
from tests.support.waiting import await_true, lives

PORT = 24901
PING_SECONDS = 10
"""A client waits as long for a brick that is silent, and then fails what it was asked to do."""
BRICK = """
volume posix
  type storage/posix
  option directory {directory}
end-volume
volume locks
  type features/locks
  subvolumes posix
end-volume
volume brick
  type performance/io-threads
  subvolumes locks
end-volume
volume server
  type protocol/server
  option transport-type tcp
  option transport.address-family inet
  option transport.socket.bind-address {host}
  option transport.socket.listen-port {port}
  option auth.addr.brick.allow *
  subvolumes brick
end-volume
"""
CLIENT = """
volume remote
  type protocol/client
  option transport-type tcp
  option transport.address-family inet
  option remote-host {host}
  option remote-port {port}
  option remote-subvolume brick
  option ping-timeout {ping}
end-volume
volume write-behind
  type performance/write-behind
  subvolumes remote
end-volume
volume readdir-ahead
  type performance/readdir-ahead
  subvolumes write-behind
end-volume
volume open-behind
  type performance/open-behind
  subvolumes readdir-ahead
end-volume
volume quick-read
  type performance/quick-read
  subvolumes open-behind
end-volume
volume md-cache
  type performance/md-cache
  subvolumes quick-read
end-volume
"""


@dataclass(slots=True)
class Gluster:
    """directory: for the brick and logs. mountpoint: the same on every node. cached: seconds for which a node may go
    by what it knows of names and attributes, also of names that are not there.
    """

    directory: Path
    mountpoint: Path
    cached: float
    process: subprocess.Popen[bytes] | None = None
    clients: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def brick(self) -> Path:
        """What is stored, as it is: no cache lies between."""
        return self.directory / "brick"

    @property
    def server(self) -> Find:
        return main_of(lambda: self.process)

    def start_brick(self) -> None:
        self.process = self._start("brick", program("glusterfsd"))
        await_true(_listens, "the brick does not listen", meanwhile=lives(self.process, self._log("brick")))

    def kill_brick(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    @contextlib.contextmanager
    def mounted(self, prefix: Sequence[str] = ()) -> Iterator[None]:
        """Mounted where commands with `prefix` run; none for this process and those that it starts."""
        name = f"client{len(self.clients)}"
        caches = [f"--{what}-timeout={self.cached}" for what in ("attribute", "entry", "negative")]
        client = self._start(name, *prefix, program("glusterfs"), *caches, last=self.mountpoint)
        self.clients.append(client)
        try:
            await_true(
                lambda: _is_mounted(prefix, self.mountpoint), "it is not mounted", pause=0.1,
                meanwhile=lives(client, self._log(name)),
            )  # fmt: skip
            yield
        finally:
            # Killed first: whoever waits for an answer is then told that there will be none.
            client.kill()
            client.wait()
            subprocess.run([*prefix, "umount", "--lazy", self.mountpoint], check=False, capture_output=True)

    def _log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def _start(self, name: str, *command: str, last: Path | None = None) -> subprocess.Popen[bytes]:
        volfile = "brick.vol" if name == "brick" else "client.vol"
        return subprocess.Popen(
            [
                *command, "--no-daemon", f"--volfile={self.directory / volfile}", f"--log-file={self._log(name)}",
                *([str(last)] if last else []),
            ],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            preexec_fn=die_with_parent,
        )  # fmt: skip


def _listens() -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HEAD, PORT), timeout=1):
        return True
    return False


def _is_mounted(prefix: Sequence[str], mountpoint: Path) -> bool:
    done = subprocess.run([*prefix, "stat", "-f", "-c", "%T", mountpoint], capture_output=True, text=True, check=False)
    return done.stdout.strip() == "fuseblk"


@contextlib.contextmanager
def gluster(directory: Path, mountpoint: Path, cached: float) -> Iterator[Gluster]:
    """The brick, started and ended; to be used by the thread that is on the head's network."""
    made = Gluster(directory, mountpoint, cached)
    made.brick.mkdir(parents=True)
    mountpoint.mkdir(parents=True)
    (directory / "brick.vol").write_text(BRICK.format(directory=made.brick, host=HEAD, port=PORT))
    (directory / "client.vol").write_text(CLIENT.format(host=HEAD, port=PORT, ping=PING_SECONDS))
    try:
        made.start_brick()
        yield made
    finally:
        made.kill_brick()
