"""A proxy between clients and a server that delays, cuts, swallows and partitions on command.

    python -m tests.kit.fault_proxy LISTEN TARGET       each a path of a Unix socket, or HOST:PORT

`proxied` runs it in a thread of a test instead. In a process of its own, commands come on standard input, one per line:
`MODE SECONDS SEED`; each is answered with a line of how many connections it hit, when it is over. Between commands
everything passes. Connections that a mode has damaged are closed at its end.

| mode | what it does while it lasts |
|---|---|
| delay | holds every chunk back for up to a quarter of a second |
| cut | forwards half of the next chunk of a client, and closes both sides |
| swallow | forwards requests, and closes both sides when the reply arrives: the reply is lost |
| half-open | closes the server's side; the client's side stays open and silent |
| mute | drops what the server sends: requests arrive, replies do not |
| deaf | drops what the client sends: the server waits, and the client does, too |
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

MODES = ("delay", "cut", "swallow", "half-open", "mute", "deaf")
_LONGEST_DELAY_S = 0.25
_SHARE = 0.7
"""Of the connections that a mode meets; the others go on, so that the two kinds mix."""


class Proxy:
    def __init__(self, target: str, share: float = _SHARE) -> None:
        self.target = target
        self.share = share
        self.mode = "pass"
        self.chance = random.Random(0)
        self.links: set[Link] = set()
        self.hits = 0
        """Connections that the last mode has met."""
        self.requested = 0
        """Bytes that were forwarded to the server since the beginning."""

    async def command(self, mode: str, seconds: float, seed: int) -> int:
        self.chance = random.Random(seed)
        self.hits = 0
        for link in self.links:
            link.hit = link.damaged = False
            link.spared = self.chance.random() >= self.share
        self.mode = mode
        await asyncio.sleep(seconds)
        self.mode = "pass"
        for link in list(self.links):
            if link.damaged:
                link.abort()
        return self.hits

    async def listen(self, address: str) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        if address.startswith("/"):
            return await loop.create_unix_server(lambda: Link(self).client, address)
        host, port = address.rsplit(":", 1)
        return await loop.create_server(lambda: Link(self).client, host, int(port))


class Link:
    """One connection of a client and its connection to the server."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.client = Side(self, self.from_client)
        self.server = Side(self, self.from_server)
        self.early = bytearray()
        """What the client sent before the server was reached."""
        self.hit = self.damaged = False
        self.spared = proxy.chance.random() >= proxy.share
        proxy.links.add(self)

    def met(self) -> str:
        """The mode, as this connection meets it."""
        mode = "pass" if self.spared else self.proxy.mode
        if mode != "pass" and not self.hit:
            self.hit = True
            self.proxy.hits += 1
        return mode

    def from_client(self, data: bytes) -> None:
        mode = self.met()
        if mode == "cut":
            self.server.write(data[: len(data) // 2])
            self.abort(gently=True)
        elif mode == "deaf" or (self.damaged and mode != "swallow" and mode != "mute"):
            self.damaged = True
        elif mode == "half-open":
            self.damaged = True
            self.server.abort()
        else:
            self.pass_on(self.server, data, delayed=mode == "delay")

    def from_server(self, data: bytes) -> None:
        mode = self.met()
        if mode == "swallow":
            self.abort()
        elif mode == "mute" or self.damaged:
            self.damaged = True
        else:
            self.pass_on(self.client, data, delayed=mode == "delay")

    def pass_on(self, to: Side, data: bytes, *, delayed: bool) -> None:
        if delayed or to.behind:
            # In order: what comes later waits for what is held back.
            delay_s = self.proxy.chance.uniform(0, _LONGEST_DELAY_S) if delayed else 0.0
            loop = asyncio.get_running_loop()
            to.next_at = max(to.next_at, loop.time() + delay_s)
            to.behind += 1
            loop.call_at(to.next_at, to.write_late, data)
        else:
            to.write(data)

    def abort(self, *, gently: bool = False) -> None:
        self.client.abort()
        if gently:
            self.server.close()
        else:
            self.server.abort()
        self.proxy.links.discard(self)

    def lost(self, side: Side) -> None:
        """One side was closed by its owner."""
        if side is self.server and self.damaged and self.proxy.mode != "pass":
            return  # the client is not to know
        self.abort()


class Side(asyncio.Protocol):
    def __init__(self, link: Link, received: Callable[[bytes], None]) -> None:
        self.link = link
        self.received = received
        self.transport: asyncio.Transport | None = None
        self.behind = 0
        self.next_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        if self is self.link.client:
            task = asyncio.get_running_loop().create_task(self._reach_server())
            _tasks.add(task)
            task.add_done_callback(_tasks.discard)
        elif self.link.early:
            self.transport.write(bytes(self.link.early))
            self.link.early.clear()

    async def _reach_server(self) -> None:
        loop, target = asyncio.get_running_loop(), self.link.proxy.target
        try:
            if target.startswith("/"):
                await loop.create_unix_connection(lambda: self.link.server, target)
            else:
                host, port = target.rsplit(":", 1)
                await loop.create_connection(lambda: self.link.server, host, int(port))
        except OSError:
            self.link.abort()

    def data_received(self, data: bytes) -> None:
        self.received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self.link.lost(self)

    def write(self, data: bytes) -> None:
        self.link.proxy.requested += len(data) if self is self.link.server else 0
        if self.transport is not None:
            self.transport.write(data)
        elif self is self.link.server:
            self.link.early += data

    def write_late(self, data: bytes) -> None:
        self.behind -= 1
        self.write(data)

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()


_tasks: set[asyncio.Task[None]] = set()


async def serve(listen: str, target: str) -> None:
    proxy = Proxy(target)
    await proxy.listen(listen)
    commands = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    print("ready", flush=True)
    while line := await commands.readline():
        mode, seconds, seed = line.decode().split()
        print(await proxy.command(mode, float(seconds), int(seed)), flush=True)


class ThreadedProxy:
    """A proxy in a thread of this process; its faults meet every connection, and last until they are healed."""

    def __init__(self, target: str) -> None:
        from tests.kit.blocking import Loop  # late: the process of a chaos run needs none of what it imports

        self._loop = Loop()
        self._proxy = Proxy(target, share=1.0)
        self._server = self._loop.run(self._proxy.listen("127.0.0.1:0"))
        self.port: int = self._server.sockets[0].getsockname()[1]

    @property
    def requested(self) -> int:
        return self._proxy.requested

    def swallow_replies(self) -> None:
        self._proxy.mode = "mute"

    def cut(self) -> None:
        """Heal, and close every connection on both sides."""
        self._loop.run(self._cut())

    def close(self) -> None:
        self._loop.run(self._close())
        self._loop.stop()

    async def _close(self) -> None:
        self._server.close()  # on its loop: asyncio's server is not safe for threads
        await self._cut()

    async def _cut(self) -> None:
        self._proxy.mode = "pass"
        for link in list(self._proxy.links):
            link.abort()


@contextmanager
def proxied(dsn: str) -> Generator[tuple[ThreadedProxy, str]]:
    """A proxy in front of the PostgreSQL server of this DSN (over its unix socket), and the DSN through it."""
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    parts = conninfo_to_dict(dsn)
    proxy = ThreadedProxy(str(Path(str(parts["host"])) / f".s.PGSQL.{parts.get('port', 5432)}"))
    try:
        yield proxy, make_conninfo(dsn, host="127.0.0.1", port=proxy.port, sslmode="disable", gssencmode="disable")
    finally:
        proxy.close()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:3]))
