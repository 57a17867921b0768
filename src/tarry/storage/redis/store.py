"""The Redis store: connections, scripts, retries. The blocking half is generated."""

from __future__ import annotations

import asyncio
import time
from typing import Any, TypeVar

from redis.exceptions import NoScriptError, RedisError

from tarry.core.clock import Clock
from tarry.core.errors import InvalidInput, InvalidState
from tarry.core.operation import Operation, foreign
from tarry.core.ports import NO_CONNECTIONS, Connections
from tarry.core.security.idempotency import AsyncIdempotentCall, IdempotencyKey, StoredResponse
from tarry.core.settings import StoreSettings
from tarry.storage.cancellations import cancellations
from tarry.storage.redis.clients import Nodes, awaiting_client, blocking_client, is_cluster
from tarry.storage.redis.connections import AwaitingConnections, BlockingConnections
from tarry.storage.redis.errors import NotReplicated, is_transient, translated
from tarry.storage.redis.operation import RedisOperation, ScriptCall
from tarry.storage.redis.roles import RedisRoles, Request
from tarry.storage.running import Running

R = TypeVar("R")

REPLICATED_WITHIN_MS = 2_000
"""How long a change waits for its replicas before the request is repeated."""
CLOSE_WITHIN_S = 3.0
"""How long `close` of an awaiting store waits for running operations."""


class AsyncRedisStore(RedisRoles):
    def __init__(
        self, url: str, *, clock: Clock | None = None, settings: StoreSettings = StoreSettings(), replicas: int = 0
    ) -> None:
        """`replicas`: the number of replicas that must have received a change before it counts as accepted."""
        super().__init__(url, clock, settings)
        self._replicas = replicas
        self._is_cluster = self._is_stale = is_cluster(url)
        self._is_closed = False
        if True:  # ASYNC
            self._running = Running()
            self._client = awaiting_client(url, settings)
            self._nodes = Nodes(url, lambda node: awaiting_client(node, settings))
            self._connections = None if self._is_cluster else AwaitingConnections(self._client, settings)
        else:
            self._client = blocking_client(url, settings)
            self._nodes = Nodes(url, lambda node: blocking_client(node, settings))
            self._connections = None if self._is_cluster else BlockingConnections(self._client, settings)

    async def run(self, operation: Operation[R], conn: Any = None) -> R:
        if not isinstance(operation, RedisOperation):
            raise foreign(operation)
        if conn is not None:
            raise InvalidInput(
                "Redis cannot take part in a transaction of your database",
                hint="leave conn out, or use the PostgreSQL store",
            )
        if True:  # ASYNC
            self._running.check_loop()
            self._running.begin()
        op = operation.start()
        try:
            call = next(op)
            while True:
                call = op.send(await self._reply(call))
        except StopIteration as stop:
            return stop.value
        finally:  # ASYNC
            self._running.end()  # ASYNC

    async def _reply(self, call: ScriptCall) -> Any:
        """Retry after transient errors with the same request number, so a script that was executed is not executed again."""
        request = self._requests.begin(call)
        started_s, failures = time.monotonic(), 0
        if True:  # ASYNC
            before = cancellations()
        while True:
            if self._is_closed:  # not left to the driver, which would connect again
                raise InvalidState("this store is closed", hint="use it inside its with block, or connect again")
            try:
                reply = await self._execute(call, request)
            except (RedisError, OSError) as error:
                retry = self.settings.connection_retry
                failures += 1
                pause_s = retry.pause(failures).total_seconds()
                spent_s = time.monotonic() - started_s + pause_s
                is_last = failures > retry.retries or spent_s > retry.total_for.total_seconds()
                if is_last or not is_transient(error):
                    raise translated(error, failures) from error
                request = self._requests.again(request, call)
            else:
                self._requests.end(request)
                if True:  # ASYNC
                    if cancellations() > before:  # before Python 3.12, `wait_for` in the driver swallows it
                        raise asyncio.CancelledError
                return reply
            await asyncio.sleep(pause_s)

    async def _execute(self, call: ScriptCall, request: Request) -> Any:
        try:
            return await self._send(call, ("EVALSHA", call.script.sha, *request.arguments))
        except NoScriptError:  # a server that was restarted, or another node
            return await self._send(call, ("EVAL", call.script.text, *request.arguments))

    async def _send(self, call: ScriptCall, command: tuple[Any, ...]) -> Any:
        if not self._replicas:
            if self._connections is not None:
                return await self._connections.execute(command)
            return await self._client.execute_command(*command)
        if self._is_stale:  # the cluster client updates its slot map by its own commands only
            await self._client.execute_command("EXISTS", call.key)
        self._is_stale = self._is_cluster  # until this try has succeeded
        # WAIT covers the writes of its own connection, so script and WAIT share one pipeline.
        async with self._nodes.of(self._client, call.key).pipeline(transaction=False) as pipe:
            pipe.execute_command(*command)
            pipe.execute_command("WAIT", self._replicas, REPLICATED_WITHIN_MS)
            reply, confirmed = await pipe.execute(raise_on_error=False)
        self._is_stale = isinstance(reply, Exception) and self._is_cluster
        if isinstance(reply, Exception):
            raise reply
        if isinstance(confirmed, Exception):  # the server became a replica while WAIT waited
            raise NotReplicated(f"no replica confirmed the change: {confirmed}")
        if confirmed < self._replicas:
            raise NotReplicated(f"{confirmed} of {self._replicas} replicas confirmed the change")
        return reply

    async def run_idempotent(self, request: IdempotencyKey, do: AsyncIdempotentCall) -> StoredResponse | None:
        """Not one transaction: if the process ends before the response is stored, the work may be repeated."""
        stored = await self.run(self.security.claim(request))
        if stored:
            return stored[0]
        response = None
        try:
            response = await do(None)
        finally:
            await self.run(self.security.keep(request, response))
        return response

    async def connections(self) -> Connections:
        return NO_CONNECTIONS if self._connections is None else self._connections.now()

    async def close(self) -> None:
        if True:  # ASYNC
            self._running.check_loop()
            await self._running.ended(CLOSE_WITHIN_S)
        self._is_closed = True
        await asyncio.to_thread(self._listener.close)
        self.wakeup.wait_queue.notify_all()  # consumers that still wait fail at their next call
        if self._connections is not None:
            self._connections.keep_idle = False
            await self._connections.close()
        if True:  # ASYNC
            for client in (*self._nodes.all(), self._client):
                await client.aclose()
        else:
            for client in (*self._nodes.all(), self._client):
                client.close()
