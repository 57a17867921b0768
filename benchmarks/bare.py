"""A client of the broker that does as little as a client can: bytes on sockets that stay open."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from tarry.core.ids import uuid7

_LENGTH = b"content-length: "


class Bare:
    """The verbs that are measured, each of `tasks` on a connection of its own."""

    def __init__(self, url: str, batch: int, *, keyed: bool = True) -> None:
        """`keyed`: an Idempotency-Key with every offer."""
        self._keyed = keyed
        self._where = urlsplit(url)
        self._open: dict[int, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}
        self._batch = batch
        self._payloads = {"messages": [{"payload": {"n": 1}}] * batch}

    async def offer(self, number: int) -> int:
        await self._post(number, "/v1/queues/bench/messages", {"payload": {"n": 1}}, keyed=True)
        return 1

    async def offer_batch(self, number: int) -> int:
        await self._post(number, "/v1/queues/bench/messages:batch", self._payloads, keyed=True)
        return self._batch

    async def poll_and_ack(self, number: int) -> int:
        for message in await self._poll(number, 1):
            await self._post(number, f"/v1/messages/{message['id']}/ack", {"token": message["token"]})
            return 1
        return 0

    async def poll_and_ack_batch(self, number: int) -> int:
        held = [{"id": message["id"], "token": message["token"]} for message in await self._poll(number, self._batch)]
        if held:
            await self._post(number, "/v1/messages:ack", {"messages": held})
        return len(held)

    async def cycle(self, number: int) -> int:
        await self.offer(number)
        return await self.poll_and_ack(number)

    def close(self) -> None:
        for _, writer in self._open.values():
            writer.close()

    async def _poll(self, number: int, most: int) -> list[dict[str, Any]]:
        response = await self._post(number, "/v1/queues/bench/messages:poll", {"max": most})
        return response["messages"] if response else []

    async def _post(self, number: int, path: str, body: Mapping[str, Any], *, keyed: bool = False) -> Any:
        if number not in self._open:
            self._open[number] = await asyncio.open_connection(self._where.hostname, self._where.port)
        reader, writer = self._open[number]
        data = msgspec.json.encode(body)
        key = f"Idempotency-Key: {uuid7(time.time_ns(), os.urandom(8))}\r\n" if keyed and self._keyed else ""
        head = f"POST {path} HTTP/1.1\r\nHost: {self._where.netloc}\r\n{key}Content-Length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 2"):
            raise RuntimeError(head.decode(errors="replace"))
        if _LENGTH not in head:
            return None
        return msgspec.json.decode(await reader.readexactly(int(head.partition(_LENGTH)[2].partition(b"\r\n")[0])))
