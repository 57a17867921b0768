"""One shared LISTEN connection per process and database.

It runs in a thread of its own, so it serves code that blocks and code that awaits, and outlives their event loops. The first
store that waits opens it, the last one that leaves closes it. Why a process shares it, and the state that this needs:
docs/decisions/0020-shared-listen-connection.md.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict

from tarry.storage.cancellations import cancellations
from tarry.storage.postgres.connections import cut, keywords
from tarry.storage.postgres.runner import drive
from tarry.storage.postgres.schema_name import in_schema, keep_schema, schema_of, schema_on
from tarry.storage.postgres.wakeup.statements import delete_stale_waiters, leave

if TYPE_CHECKING:
    from tarry.storage.postgres.wakeup.listener import Listener

TICK_S = 1.0
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 10.0
POOLED_PAUSE_S = 600.0
"""A pooler does not become a server; but an operator may replace it by one."""

_DIRECT = "set a DSN that bypasses it (listen_dsn, or TARRY_LISTEN_DSN)"

_log = logging.getLogger("tarry.listen")


class _Pooled(Exception):
    """The server process is not the one we connected to: a pooler would receive our notifications."""


class ListenConnection:
    """One connection, reopened whenever it is lost. Only `ListenerPool` changes its subscribers."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self.subscribers: tuple[Listener, ...] = ()
        """Replaced, never changed: the thread of the connection reads it at any time."""
        self.left: deque[str] = deque()
        """Names of former subscribers, which other processes may still notify."""
        self.is_open = False
        self._reported: str | None = None
        self._cancel: Callable[[], object] | None = None
        self._thread = threading.Thread(target=self._run_thread, name="tarry-listen", daemon=True)
        self._ready = threading.Event()

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()

    def stop(self) -> None:
        if self._cancel is not None and self._thread.is_alive():
            with suppress(RuntimeError):  # its loop has just been closed
                self._cancel()
            self._thread.join(2 * TICK_S)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _run_thread(self) -> None:
        async def run() -> None:
            loop, task = asyncio.get_running_loop(), asyncio.current_task()
            assert task is not None  # noqa: S101 - for the type checker: this is a task
            self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
            self._ready.set()
            with suppress(asyncio.CancelledError):
                await self._run()

        try:
            asyncio.run(run())
        finally:
            self._ready.set()  # also if there was no descriptor left for a loop: `start` must not wait forever

    async def _run(self) -> None:
        """Listen until cancelled."""
        failures = 0
        while True:
            started, pause_s = time.monotonic(), LONGEST_PAUSE_S
            try:
                await self._listen()
            except _Pooled:
                pause_s = POOLED_PAUSE_S
                self._warn_once(
                    "pooled", "the database is behind a pooler, which does not forward notifications", _DIRECT
                )
            except (psycopg.Error, OSError) as error:
                what = "the LISTEN connection was lost, and is opened again" if self.is_open else "cannot listen"
                self._warn_once("away", what, " ".join(str(error).split()))
            except Exception:
                _log.exception("listening failed; trying again")
            finally:
                self.is_open = False
                for subscriber in self.subscribers:
                    subscriber.closed()
            if cancellations():  # the driver has raised the error that ended its statement instead
                return
            failures = 0 if time.monotonic() - started > LONGEST_PAUSE_S else failures + 1
            if pause_s < POOLED_PAUSE_S:
                # Not all at the same moment: a server that has just been restarted is busy.
                jitter = 0.5 + secrets.randbelow(1000) / 1000
                pause_s = min(pause_s, FIRST_PAUSE_S * 2 ** min(max(failures - 1, 0), 30)) * jitter
            await asyncio.sleep(pause_s)

    async def _listen(self) -> None:
        options: dict[str, Any] = {"application_name": "tarry-listen", "prepare_threshold": None}
        conn: AsyncConnection[Any] = await AsyncConnection.connect(self._dsn, **(keywords(self._dsn) | options))
        keep_schema(conn, schema_of(self._dsn))
        try:
            if (await (await conn.execute("select pg_backend_pid()")).fetchone()) != (conn.info.backend_pid,):
                raise _Pooled
            await conn.execute(in_schema("set lock_timeout = '5s'; listen tarry", schema_on(conn)))
            await drive(conn, delete_stale_waiters().run(), external=True)
            self._opened()
            while True:
                async for notification in conn.notifies(timeout=TICK_S):
                    for subscriber in self.subscribers:
                        subscriber.receive(notification.payload)
                for subscriber in self.subscribers:
                    for key in subscriber.ticked():
                        await drive(conn, leave(subscriber.name, key.queue, key.type).run(), external=True)
                await self._forget_left(conn)
        except asyncio.CancelledError:
            # Not a time-out around it: a cancelled statement waits for the server once more, which may be frozen.
            asyncio.get_running_loop().call_later(TICK_S, cut, conn)
            with suppress(psycopg.Error):
                await self._forget_left(conn)
            raise
        finally:
            await conn.close()

    def _opened(self) -> None:
        self.is_open = True
        if self._reported is not None:
            self._reported = None
            _log.info("listening again")
        for subscriber in self.subscribers:
            subscriber.opened()

    async def _forget_left(self, conn: AsyncConnection[Any]) -> None:
        while self.left:
            await drive(conn, leave(self.left.popleft()).run(), external=True)

    def _warn_once(self, kind: str, what: str, more: str) -> None:
        """Once, until it listens again: it tries for as long as it has subscribers."""
        if self._reported != kind:
            self._reported = kind
            _log.warning("%s; meanwhile waiting polls scan every scan_every: %s", what, more)


class ListenerPool:
    """The LISTEN connections of a process. Thread-safe; a forked child has none, and opens its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_address: dict[frozenset[tuple[str, Any]], ListenConnection] = {}

    def forget(self) -> None:
        """In a forked child: the connections are in the parent process, and the lock may be held there."""
        self._lock, self._by_address = threading.Lock(), {}

    def join(self, dsn: str, subscriber: Listener) -> ListenConnection:
        keywords(dsn)  # rejects an invalid DSN without quoting its password
        address = frozenset(conninfo_to_dict(dsn).items())
        with self._lock:
            if (connection := self._by_address.get(address)) is None or not connection.is_alive:
                connection = ListenConnection(dsn)
                connection.start()
                self._by_address[address] = connection
            connection.subscribers = (*connection.subscribers, subscriber)
        return connection

    def leave(self, connection: ListenConnection, subscriber: Listener) -> None:
        with self._lock:
            connection.subscribers = tuple(other for other in connection.subscribers if other is not subscriber)
            connection.left.append(subscriber.name)
            if is_last := not connection.subscribers:
                self._by_address = {key: other for key, other in self._by_address.items() if other is not connection}
        if is_last:
            connection.stop()


LISTENER_POOL = ListenerPool()
os.register_at_fork(after_in_child=LISTENER_POOL.forget)
