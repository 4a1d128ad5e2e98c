"""A TCP load balancer in front of a cluster's nodes, as the one of Amazon MQ; it can cut connections.

    python -m packages.broker_plays.balancer PORT HOST:PORT …

Commands on stdin, one a line: ``cut N`` ends the next N connections amid the login, ``drop`` ends all. The
number of connections cut so far is printed after each.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Iterator

_CONNECT_SECONDS = 1.0


class Balancer:
    """Accepts connections and pairs each with a node that answers."""

    def __init__(self, nodes: list[tuple[str, int]]) -> None:
        self._nodes: Iterator[tuple[str, int]] = itertools.cycle(nodes)
        self._size = len(nodes)
        self._open: set[asyncio.StreamWriter] = set()
        self._to_cut = 0
        self.cut = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection until either side ends it."""
        upstream = await self._connect()
        if upstream is None:
            writer.close()
            return
        node_reader, node_writer = upstream
        self._open |= {writer, node_writer}
        try:
            if self._to_cut:
                self._to_cut -= 1
                node_writer.write(await reader.read(8))
                writer.write(await node_reader.read(4096))
                await reader.read(4096)  # the login
                self.cut += 1
                return
            both = [_pump(reader, node_writer), _pump(node_reader, writer)]
            tasks = [asyncio.ensure_future(side) for side in both]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
        except OSError:
            pass
        finally:
            self._open -= {writer, node_writer}
            writer.close()
            node_writer.close()

    def obey(self, command: str) -> None:
        """Execute a command."""
        name, _, number = command.strip().partition(" ")
        if name == "cut":
            self._to_cut += int(number)
        elif name == "drop":
            for writer in list(self._open):
                writer.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for _ in range(self._size):
            host, port = next(self._nodes)
            try:
                return await asyncio.wait_for(asyncio.open_connection(host, port), _CONNECT_SECONDS)
            except (OSError, TimeoutError):
                continue
        return None


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except OSError:
        return


async def main(port: int, nodes: list[tuple[str, int]]) -> None:
    """Serve until stdin ends."""
    balancer = Balancer(nodes)
    server = await asyncio.start_server(balancer.serve, "127.0.0.1", port)
    stdin = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    while line := await stdin.readline():
        balancer.obey(line.decode())
        sys.stdout.write(f"{balancer.cut}\n")
        sys.stdout.flush()
    server.close()


if __name__ == "__main__":
    addresses = [text.rpartition(":") for text in sys.argv[2:]]
    asyncio.run(main(int(sys.argv[1]), [(host, int(port)) for host, _, port in addresses]))
