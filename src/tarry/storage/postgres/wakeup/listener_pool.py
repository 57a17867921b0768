"""The ears of this process: one connection per database that listens, for every store that waits.

It runs in a thread of its own, so it serves code that blocks and code that awaits, and outlives their event loops. It is
opened by the first store that waits, and closed by the last that leaves. Why it is shared by a whole process, with the state
that this takes: docs/decisions/0020-shared-listen-connection.md.
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
from typing import Any, Protocol

import psycopg
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict

from tarry.core.waiting import LineKey
from tarry.storage.postgres.connections import cut, keywords
from tarry.storage.postgres.drive import adrive
from tarry.storage.postgres.wait_statements import forget_waiters, leave

TICK_S = 1.0
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 10.0
POOLED_PAUSE_S = 600.0
"""A pooler does not become a server; but somebody may put another one in its place."""

_DIRECT = "give a direct address to be called (listen_dsn, or TARRY_LISTEN_DSN)"

_log = logging.getLogger("tarry.listen")


class Hearer(Protocol):
    """One who is told what an ear hears, by the ear's thread."""

    @property
    def name(self) -> str:
        """Under which others ring for it."""
        ...

    def opened(self) -> None: ...
    def hear(self, payload: str) -> None: ...
    def closed(self) -> None:
        """Nothing is heard until it is opened again."""
        ...

    def ticked(self) -> list[LineKey]:
        """Once in a while; answers with what nobody needs to ring for any more."""
        ...


class _Pooled(Exception):
    """Whoever answers is not the session we opened: it would hear for us what we never get."""


class Ear:
    """One connection, which comes back whenever it was cut off. Only `Ears` changes who hears by it."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self.hearers: tuple[Hearer, ...] = ()
        """Replaced, never changed: the ear's thread reads it at any time."""
        self.left: deque[str] = deque()
        """Names of those who went, for whom others may still ring."""
        self.is_open = False
        self._told: str | None = None
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
            self._ready.set()  # also if there was no descriptor left for a loop: nobody waits for it for ever

    async def _run(self) -> None:
        """Listens until it is cancelled."""
        failures = 0
        while True:
            started, pause_s = time.monotonic(), LONGEST_PAUSE_S
            try:
                await self._listen()
            except _Pooled:
                pause_s = POOLED_PAUSE_S
                self._complain(
                    "pooled", "the database is behind a pooler, which does not pass notifications on", _DIRECT
                )
            except (psycopg.Error, OSError) as error:
                what = "the connection that listens was lost, and is opened again" if self.is_open else "cannot listen"
                self._complain("away", what, str(error).strip())
            except Exception:
                _log.exception("listening failed; trying again")
            finally:
                self.is_open = False
                for hearer in self.hearers:
                    hearer.closed()
            failures = 0 if time.monotonic() - started > LONGEST_PAUSE_S else failures + 1
            if pause_s < POOLED_PAUSE_S:
                # Not all at the same moment: a server that has just come back has enough to do.
                jitter = 0.5 + secrets.randbelow(1000) / 1000
                pause_s = min(pause_s, FIRST_PAUSE_S * 2 ** min(max(failures - 1, 0), 30)) * jitter
            await asyncio.sleep(pause_s)

    async def _listen(self) -> None:
        options: dict[str, Any] = {"application_name": "tarry-listen", "prepare_threshold": None}
        conn: AsyncConnection[Any] = await AsyncConnection.connect(self._dsn, **(keywords(self._dsn) | options))
        try:
            if (await (await conn.execute("select pg_backend_pid()")).fetchone()) != (conn.info.backend_pid,):
                raise _Pooled
            await conn.execute("set lock_timeout = '5s'; listen tarry")
            await adrive(conn, forget_waiters().run(), guest=True)
            self._opened()
            while True:
                async for notification in conn.notifies(timeout=TICK_S):
                    for hearer in self.hearers:
                        hearer.hear(notification.payload)
                for hearer in self.hearers:
                    for key in hearer.ticked():
                        await adrive(conn, leave(hearer.name, key.queue, key.type).run(), guest=True)
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
        if self._told is not None:
            self._told = None
            _log.info("listening again")
        for hearer in self.hearers:
            hearer.opened()

    async def _forget_left(self, conn: AsyncConnection[Any]) -> None:
        while self.left:
            await adrive(conn, leave(self.left.popleft()).run(), guest=True)

    def _complain(self, kind: str, what: str, more: str) -> None:
        """Once, until it listens again: it tries for as long as somebody waits."""
        if self._told != kind:
            self._told = kind
            _log.warning("%s; meanwhile waiting polls look every so often (scan_every): %s", what, more)


class Ears:
    """Who hears by which ear. Thread-safe; a forked child has none, and opens its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_address: dict[frozenset[tuple[str, Any]], Ear] = {}

    def forget(self) -> None:
        """In a forked child: the ears are in the other process, and the lock may be held there."""
        self._lock, self._by_address = threading.Lock(), {}

    def join(self, dsn: str, hearer: Hearer) -> Ear:
        keywords(dsn)  # refuses what is no address, in words that quote no password
        address = frozenset(conninfo_to_dict(dsn).items())
        with self._lock:
            if (ear := self._by_address.get(address)) is None or not ear.is_alive:
                ear = Ear(dsn)
                ear.start()
                self._by_address[address] = ear
            ear.hearers = (*ear.hearers, hearer)
        return ear

    def leave(self, ear: Ear, hearer: Hearer) -> None:
        with self._lock:
            ear.hearers = tuple(other for other in ear.hearers if other is not hearer)
            ear.left.append(hearer.name)
            if is_last := not ear.hearers:
                self._by_address = {key: other for key, other in self._by_address.items() if other is not ear}
        if is_last:
            ear.stop()


EARS = Ears()
os.register_at_fork(after_in_child=EARS.forget)
