"""A TCP relay that can lose the network: run as a program, it takes one command a line on its standard input.

``python relay.py HOST PORT TO_HOST TO_PORT`` prints ``ready``, and ``ok`` after each command:

==================== ==================================================================================
``forward``          as a cable; bytes held back before are sent on
``hold``             a black hole: connections stay open and are accepted, and nothing passes
``cut``              open connections are reset and new ones too
``delay SECONDS``    every piece waits so long before it goes on
==================== ==================================================================================

Standard library only, and it ends with its standard input, so it never outlives the one who started it.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys

PIECE = 1 << 16


class Relay:
    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.delay = 0.0
        self.is_cut = False
        self.passage = asyncio.Event()
        self.passage.set()
        self.open: set[asyncio.StreamWriter] = set()

    def command(self, words: list[str]) -> None:
        name = words[0]
        self.is_cut, self.delay = name == "cut", float(words[1]) if name == "delay" else 0.0
        if name == "hold":
            self.passage.clear()
        else:
            self.passage.set()
        if name == "cut":
            for writer in tuple(self.open):
                reset(writer)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open.add(writer)
        beyond = None
        try:
            await self.passage.wait()
            if self.is_cut:
                return
            there, beyond = await asyncio.open_connection(self.host, self.port)
            self.open.add(beyond)
            await asyncio.gather(self.pump(reader, beyond), self.pump(there, writer))
        except OSError:
            return
        finally:
            for one in (writer, beyond):
                if one is not None:
                    self.open.discard(one)
                    reset(one)

    async def pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(PIECE):
            await self.passage.wait()
            if self.delay:
                # The fault itself: a slow network.
                await asyncio.sleep(self.delay)
            target.write(data)
            await target.drain()
        target.write_eof()


def reset(writer: asyncio.StreamWriter) -> None:
    """Closes without a farewell, as a machine does that went away; at the end of both directions nobody sees it."""
    connection: socket.socket = writer.get_extra_info("socket")
    if connection.fileno() >= 0 and not writer.is_closing():
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.close()


async def main(host: str, port: int, to_host: str, to_port: int) -> None:
    relay = Relay(to_host, to_port)
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    async with await asyncio.start_server(relay.serve, host, port):
        print("ready", flush=True)
        while line := await commands.readline():
            relay.command(line.decode().split())
            print("ok", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
