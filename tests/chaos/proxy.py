"""A proxy process between clients and a server that delays, cuts, swallows and partitions on command.

    python -m tests.chaos.proxy LISTEN TARGET       each a path of a Unix socket, or HOST:PORT

Commands come on standard input, one per line: `MODE SECONDS SEED`; each is answered with a line of how many connections it
hit, when it is over. Between commands everything passes. Connections that a mode has damaged are closed at its end.

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
from collections.abc import Callable
from typing import cast

MODES = ("delay", "cut", "swallow", "half-open", "mute", "deaf")
_LONGEST_DELAY_S = 0.25
_SHARE = 0.7
"""Of the connections that a mode meets; the others go on, so that the two kinds mix."""


class Proxy:
    def __init__(self, target: str) -> None:
        self.target = target
        self.mode = "pass"
        self.chance = random.Random(0)
        self.links: set[Link] = set()
        self.hits = 0
        """Connections that the last mode has met."""

    async def command(self, mode: str, seconds: float, seed: int) -> int:
        self.chance = random.Random(seed)
        self.hits = 0
        for link in self.links:
            link.hit = link.damaged = False
            link.spared = self.chance.random() >= _SHARE
        self.mode = mode
        await asyncio.sleep(seconds)
        self.mode = "pass"
        for link in list(self.links):
            if link.damaged:
                link.abort()
        return self.hits


class Link:
    """One connection of a client and its connection to the server."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.client = Side(self, self.from_client)
        self.server = Side(self, self.from_server)
        self.early = bytearray()
        """What the client sent before the server was reached."""
        self.hit = self.damaged = False
        self.spared = proxy.chance.random() >= _SHARE
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
    loop = asyncio.get_running_loop()
    if listen.startswith("/"):
        await loop.create_unix_server(lambda: Link(proxy).client, listen)
    else:
        host, port = listen.rsplit(":", 1)
        await loop.create_server(lambda: Link(proxy).client, host, int(port))
    commands = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    print("ready", flush=True)
    while line := await commands.readline():
        mode, seconds, seed = line.decode().split()
        print(await proxy.command(mode, float(seconds), int(seed)), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:3]))
