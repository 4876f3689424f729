"""The faults themselves: each does what it says, and takes it back."""

from __future__ import annotations

import contextlib
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hsqueue.contracts.rid import RequestId
from tests.chaos.operations.dumps import SpoilDumps, rows_swapped, swapped, torn
from tests.chaos.operations.freeze import Freeze
from tests.chaos.operations.kill import Kill, KillSoon
from tests.chaos.operations.network import Proxy, Relayed, Unplug, proxy
from tests.chaos.operations.processes import Find, children_of, main_of, one_of, tree_of
from tests.chaos.operations.redis import RedisBackEmpty, RedisClockSet, RedisDead, RedisFlushed, RedisFrozen
from tests.chaos.operations.system import ClockSet, LinkLies, SlowFsync, shimmed
from tests.support.engine import environment
from tests.support.ledger import INFO
from tests.support.redis import RedisServer, free_port, redis_server
from tests.support.volume import make_sample, write_dump
from tests.support.waiting import await_true

FORKS = "import os, signal\nif os.fork(): print('forked', flush=True)\nsignal.pause()"


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[bytes]]:
    """A process with a child."""
    process = subprocess.Popen([sys.executable, "-c", FORKS], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    family = tree_of(main_of(lambda: process))()
    yield process
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    process.communicate()


def main(process: subprocess.Popen[bytes]) -> Find:
    return main_of(lambda: process)


def test_kill_of_a_child_leaves_its_parent(parent: subprocess.Popen[bytes]) -> None:
    child = children_of(main(parent))()
    assert Kill(one_of(children_of(main(parent)), random.Random(1))).apply() == f"killed {child[0].pid}"
    await_true(lambda: child[0].status() == psutil.STATUS_ZOMBIE, "the child lives")
    assert parent.poll() is None


def test_kill_of_nobody_says_so() -> None:
    assert Kill(main_of(lambda: None)).apply() == ""


@pytest.mark.parametrize(("seconds", "told"), [(0.5, "killed after 0.50 s"), (30, "had ended with status 3")])
def test_kill_soon_leaves_time(seconds: float, told: str) -> None:
    script = "import signal; signal.pause()" if seconds < 1 else "raise SystemExit(3)"
    assert KillSoon(lambda: subprocess.Popen([sys.executable, "-c", script]), seconds).apply() == told


def test_freeze_stops_a_family_and_thaws_it(parent: subprocess.Popen[bytes]) -> None:
    family = tree_of(main(parent))()
    fault = Freeze(tree_of(main(parent)))
    assert fault.apply() == f"froze {family[0].pid} {family[1].pid}"
    await_true(lambda: all(p.status() == psutil.STATUS_STOPPED for p in family), "somebody runs")
    fault.undo()
    await_true(lambda: all(p.status() != psutil.STATUS_STOPPED for p in family), "somebody is still frozen")


# --- the network -----------------------------------------------------------------------------------------


@pytest.fixture
def relay() -> Iterator[Proxy]:
    """Before a server that sends back what it gets."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    threading.Thread(target=echo, args=(connection,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        with proxy("127.0.0.1", free_port(), "127.0.0.1", listener.getsockname()[1]) as started:
            yield started
        listener.shutdown(socket.SHUT_RDWR)


def echo(connection: socket.socket) -> None:
    with connection, contextlib.suppress(OSError):
        while data := connection.recv(1 << 16):
            connection.sendall(data)


def connected(relay: Proxy, timeout: float = 20.0) -> socket.socket:
    return socket.create_connection((relay.host, relay.port), timeout=timeout)


def says(connection: socket.socket, word: bytes) -> bytes:
    connection.sendall(word)
    return connection.recv(100)


def is_gone(connection: socket.socket) -> bool:
    """Reset or ended by the other side."""
    try:
        return connection.recv(100) == b""
    except ConnectionError:
        return True


def test_a_black_hole_keeps_connections_and_loses_nothing(relay: Proxy) -> None:
    with connected(relay) as old:
        assert says(old, b"a") == b"a"
        fault = Relayed(relay, "hold")
        assert fault.apply()
        old.settimeout(0.3)
        with connected(relay, 0.3) as new:
            for connection in (old, new):
                with pytest.raises(TimeoutError):
                    says(connection, b"b")
            fault.undo()
            for connection in (old, new):
                connection.settimeout(20)
                assert connection.recv(100) == b"b"


def test_a_cut_resets_what_is_open_and_what_comes(relay: Proxy) -> None:
    with connected(relay) as old:
        assert says(old, b"a") == b"a"
        fault = Relayed(relay, "cut")
        fault.apply()
        assert is_gone(old)
        with contextlib.suppress(ConnectionError), connected(relay) as new:
            assert is_gone(new)
        fault.undo()
    with connected(relay) as again:
        assert says(again, b"c") == b"c"


def test_a_delay_is_one(relay: Proxy) -> None:
    with connected(relay, 0.2) as connection:
        fault = Relayed(relay, "delay 0.5")
        fault.apply()
        with pytest.raises(TimeoutError):
            says(connection, b"a")
        connection.settimeout(20)
        assert connection.recv(1) == b"a"
        fault.undo()


def test_a_cable_is_pulled_and_put_back() -> None:
    told: list[str] = []
    fault = Unplug("node", told.append)
    assert fault.apply() == "node has no network"
    fault.undo()
    assert told == ["down", "up"]


# --- Redis -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis"), "appendfsync always") as started:
        yield started


@pytest.fixture
def server(_server: RedisServer) -> RedisServer:
    with _server.client() as client:
        client.set("kept", "1")
    return _server


def kept(server: RedisServer) -> bool:
    with server.client() as client:
        return client.get("kept") == "1"


@pytest.mark.parametrize(("kind", "keeps"), [(RedisDead, True), (RedisBackEmpty, False)])
def test_redis_dies_and_is_back(server: RedisServer, kind: type[RedisDead | RedisBackEmpty], keeps: bool) -> None:
    fault = kind(server)
    fault.apply()
    with pytest.raises(ConnectionError):
        socket.create_connection(("127.0.0.1", server.port))
    fault.undo()
    assert kept(server) is keeps


def test_redis_is_flushed(server: RedisServer) -> None:
    RedisFlushed(server).apply()
    assert not kept(server)


def test_redis_is_silent(server: RedisServer) -> None:
    fault = RedisFrozen(server)
    fault.apply()
    with socket.create_connection(("127.0.0.1", server.port), timeout=0.3) as connection:
        connection.sendall(b"PING\r\n")
        with pytest.raises(TimeoutError):
            connection.recv(100)
        fault.undo()
        connection.settimeout(20)
        assert connection.recv(100)


def test_a_clock_set_forward_ends_leases(server: RedisServer) -> None:
    from hsqueue.ledger.ledger import Ledger
    from hsqueue.ledger.records import Lease

    with server.client() as client:
        ledger = Ledger(client, server.url, INFO.run)
        ledger.create(INFO, (), (), ())
        assert isinstance(ledger.acquire(0, "a", 60), Lease)
        RedisClockSet(server, 30).apply()
        assert ledger.live_holders() == {0: "a"}
        RedisClockSet(server, 40).apply()
        assert ledger.live_holders() == {}


# --- dumps -----------------------------------------------------------------------------------------------


@pytest.fixture
def dumps(tmp_path: Path) -> list[Path]:
    """Three of one length and a longer one."""
    return [write_dump(tmp_path, RequestId("r1", k, 1 << 32, 0), make_sample(k, 9 + 20 * (k == 3))) for k in range(4)]


def test_torn_dumps_are_cut_while_the_worker_stands_still(
    dumps: list[Path], tmp_path: Path, parent: subprocess.Popen[bytes]
) -> None:
    before = [path.stat().st_size for path in dumps]
    states: list[str] = []

    def spoil(paths: list[Path]) -> int:
        states.extend(p.status() for p in tree_of(main(parent))())
        return torn(paths)

    assert SpoilDumps(tree_of(main(parent)), tmp_path, spoil).apply() == "4 dumps"
    assert states == [psutil.STATUS_STOPPED] * 2
    assert [path.stat().st_size for path in dumps] == [size // 2 for size in before]
    await_true(lambda: psutil.Process(parent.pid).status() != psutil.STATUS_STOPPED, "the worker is still frozen")


def test_swapped_dumps_hold_what_their_neighbours_held(dumps: list[Path]) -> None:
    before = [path.read_bytes() for path in dumps]
    assert swapped(dumps) == 4
    after = [path.read_bytes() for path in dumps]
    assert sorted(after) == sorted(before)
    assert all(a != b for a, b in zip(after, before, strict=True))


def test_swapped_rows_keep_their_headers(dumps: list[Path]) -> None:
    before = [path.read_bytes() for path in dumps]
    assert rows_swapped(dumps) == 2
    after = [path.read_bytes() for path in dumps]
    changed = [k for k in range(4) if after[k] != before[k]]
    assert len(changed) == 2
    a, b = changed
    size = 8 + int.from_bytes(before[a][:8], "little")
    assert (after[a][:size], after[b][:size]) == (before[a][:size], before[b][:size])
    assert (after[a][size:], after[b][size:]) == (before[b][size:], before[a][size:])


# --- calls of the system ---------------------------------------------------------------------------------

CALLS = """
import os, sys, time
began = time.monotonic()
with open("a", "w") as file:
    os.fsync(file.fileno())
try:
    os.link("a", "b")
    error = 0
except OSError as raised:
    error = raised.errno
print(time.monotonic() - began, error, os.path.exists("b"), time.time(), time.time_ns() / 1e9)
"""


def calls(control: Path, tmp_path: Path) -> tuple[float, int, bool, float]:
    """(seconds of an fsync, error of a link, whether it made the name, how far the clock is ahead)."""
    import time

    (tmp_path / "b").unlink(missing_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", CALLS],
        env=shimmed(environment(), control, tmp_path / "links"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, error, made, now, nanoseconds = done.stdout.split()
    assert abs(float(now) - float(nanoseconds)) < 5
    return float(seconds), int(error), made == "True", float(now) - time.time()


def test_system_calls_go_wrong_only_while_told(tmp_path: Path) -> None:
    control = tmp_path / "control.json"
    seconds, error, made, ahead = calls(control, tmp_path)
    assert (seconds < 0.9, error, made, abs(ahead) < 60) == (True, 0, True, True)
    for fault, expected in (
        (SlowFsync(control, 1.0), (True, 0, True, False)),
        (LinkLies(control), (False, 5, True, False)),
        (ClockSet(control, 7200), (False, 0, True, True)),
    ):
        fault.apply()
        seconds, error, made, ahead = calls(control, tmp_path)
        assert (seconds > 0.9, error, made, ahead > 3600) == expected, fault
        fault.undo()
    assert calls(control, tmp_path)[1] == 0
    assert (tmp_path / "links").read_text() == "b\n" * 5
