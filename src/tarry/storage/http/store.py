"""A broker as a store."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any, TypeVar

from tarry.core.errors import InvalidInput
from tarry.core.journal.positions import Gap, LiveEvent
from tarry.core.operation import Operation, foreign
from tarry.core.settings import StoreSettings
from tarry.storage.http.call import Call, HttpOperation, Reply
from tarry.storage.http.connections import AsyncConnectionPool, AsyncSocket
from tarry.storage.http.cron import HttpCron
from tarry.storage.http.dead_letters import HttpDeadLetters
from tarry.storage.http.keys import HttpKeys
from tarry.storage.http.messages import HttpJournal, HttpMessages
from tarry.storage.http.protocol import Address, HttpResponse
from tarry.storage.http.queues import HttpQueues
from tarry.storage.http.transport import FAULTS, EventTail, RequestTries

R = TypeVar("R")


class AsyncHttpStore:
    def __init__(self, url: str, key: str | None = None, *, settings: StoreSettings = StoreSettings()) -> None:
        self.settings = settings
        self.messages = HttpMessages(create=settings.create_queues)
        self.queues = HttpQueues()
        self.dead_letters = HttpDeadLetters()
        self.cron = HttpCron(create=settings.create_queues)
        self.journal = HttpJournal()
        self.keys = HttpKeys()
        self._address = Address(url, key)
        self._connect_s = settings.connect_for.total_seconds()
        self._pool = AsyncConnectionPool(self._address, settings.pool_size)

    async def run(self, operation: Operation[R], conn: Any = None) -> R:
        if not isinstance(operation, HttpOperation):
            raise foreign(operation)
        if conn is not None:
            raise InvalidInput(
                "a broker has no connections: its changes cannot be part of a transaction",
                hint="leave conn away, or connect to the database: tarry.connect(dsn)",
            )
        op = operation.start()
        try:
            call = next(op)
            while True:
                call = op.send(await self._reply(call))
        except StopIteration as stop:
            return stop.value

    async def _reply(self, call: Call) -> Reply:
        tries, request = RequestTries(self.settings, call), self._address.request(call, self._connect_s)
        while True:
            tries.next()
            try:
                reply = tries.received(await self._pool.exchange(request))
            except FAULTS as error:
                reply = tries.failed(error)
            if reply is not None:
                return reply
            await asyncio.sleep(tries.pause_s)

    async def events(
        self, queues: Sequence[str], kinds: Sequence[str], after: str | None
    ) -> AsyncGenerator[LiveEvent | Gap]:
        """Tail the journal on a connection of its own, which is open while the caller iterates."""
        tail = EventTail(self.settings, queues, kinds, after)
        while True:
            await asyncio.sleep(tail.tries.pause_s)
            opened, response = None, HttpResponse()
            try:
                request = tail.request(self._address)
                opened = await AsyncSocket.connect(self._address, request.connect_s)
                await opened.send(request)
                while not response.is_complete:
                    response.receive(await opened.receive())
                    if response.status == 200 and (chunk := response.take_body()):
                        for event in tail.events(chunk):
                            yield event
                if response.status != 200:
                    tail.rejected(response)
            except FAULTS as error:
                tail.failed(error)
            finally:
                if opened is not None:
                    await opened.close()

    async def close(self) -> None:
        await self._pool.close()
